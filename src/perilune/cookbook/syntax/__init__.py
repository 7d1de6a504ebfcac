"""Reading MDX: Markdown blocks and inline text by markdown-it, JSX and expressions by the rules of MDX."""
