"""The radix tree over block ids."""

from __future__ import annotations


class Node:
    """A stretch of equal tokens below its parent."""
