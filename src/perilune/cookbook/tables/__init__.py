"""Tables of a page: Markdown pipe tables to JSX tables and back, with nothing else changed."""
