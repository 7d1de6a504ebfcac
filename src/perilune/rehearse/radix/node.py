"""One node of the radix tree."""

from __future__ import annotations

from typing import Final

from perilune.rehearse.radix.key import Key, Page


class Node:
    """The tokens [start, end) of a path, a whole number of pages, and perhaps the state after the last of them.

    `key` is that of any request that came along here. `used` orders nodes by their last use, `state_used` states;
    `locks` counts requests that need the tokens, `state_locks` those that need the state.
    """

    __slots__ = (
        "children",
        "end",
        "first",
        "gone",
        "history",
        "hits",
        "key",
        "locks",
        "parent",
        "priority",
        "queued",
        "start",
        "state",
        "state_locks",
        "state_queued",
        "state_used",
        "used",
    )

    def __init__(self, parent: Node | None, key: Key, first: Page, start: int, end: int, used: int) -> None:
        self.parent = self if parent is None else parent  # the root is its own
        self.gone = False  # evicted
        self.key = key
        self.first = first  # content of the first page: its place among the children of the parent
        self.start = start
        self.end = end
        self.children = CHILDLESS
        self.locks = 0
        self.state = False
        self.state_locks = 0
        self.used = used
        self.state_used = 0
        self.queued = False  # whether the queue of leaves holds it
        self.state_queued = False  # whether the queue of states holds it
        self.hits = 0  # inserts of other requests that passed, for lfu and slru
        self.priority = 0  # for the policy of that name
        self.history = end  # the greatest depth its branch ever had, for tlru


CHILDLESS: Final[dict[Page, Node]] = {}
"""The children of every new node: most stay leaves. Replaced, never filled."""
