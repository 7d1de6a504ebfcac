"""Is a page fit to publish? The contribution checklist and the catalog, as rules with line numbers."""
