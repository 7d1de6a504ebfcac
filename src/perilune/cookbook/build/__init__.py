"""Pages built from the facts: every figure, table and command is looked up or computed, none is typed in."""
