"""Is the documentation true? Tables of MDX pages, page lint, and pages built from the facts."""
