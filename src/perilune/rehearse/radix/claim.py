"""What one request holds of both pools and of the radix tree."""

from __future__ import annotations

from typing import Final

from perilune.rehearse.radix.key import Key
from perilune.rehearse.radix.node import Node

NOWHERE: Final = Node(None, Key(), 0, 0, 0, 0)
"""Where a request is that no cache was asked about."""


class Claim:
    """One request's hold, from its first match until it finishes or is retracted; then it can be matched again.

    `cached` counts the leading tokens that the tree owns (the request owns the KV pages after them), `slots` the
    state slots that the request itself holds; the state of its locked `node` belongs to the tree.
    """

    __slots__ = ("branch", "cached", "inserted", "key", "node", "slots", "state_locked")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.node = NOWHERE
        self.state_locked = False
        self.cached = 0
        self.slots = 0
        self.branch = 0  # where matched KV ran on past the last state, on the grid; 0 without
        self.inserted = 0  # tokens this request has put into the tree so far
