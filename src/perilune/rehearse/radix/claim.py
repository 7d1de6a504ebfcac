"""What one request holds of both pools and of the radix tree."""

from __future__ import annotations

from perilune.rehearse.radix.key import Key
from perilune.rehearse.radix.tree import Node


class Claim:
    """One request's hold, kept from its first match until it finishes or is retracted.

    `cached` counts the leading tokens that the tree owns (the request owns the KV pages after them), `slots` the state
    slots that the request itself holds; the state of its locked `node` belongs to the tree.
    """

    __slots__ = ("branch", "cached", "inserted", "key", "locked", "node", "slots", "state_locked", "tracked")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.node: Node | None = None
        self.locked = False
        self.state_locked = False
        self.cached = 0
        self.slots = 0
        self.branch = 0  # where a matched KV prefix ran on past the last snapshot; 0 without
        self.tracked = 0  # tokens that the newest tracked state stands for; 0 without
        self.inserted = 0  # tokens this request has put into the tree so far
