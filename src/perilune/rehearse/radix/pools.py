"""Both pools of one worker: what is free, what the radix tree keeps in them, what is locked, and what goes first.

Source: SGLang 0.5.23, sglang/srt/mem_cache/unified_radix_cache.py (`evict_for_alloc`), unified_cache/components/full.py
and mamba.py (locks, and the order of eviction).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from perilune.rehearse.radix.key import Key
from perilune.rehearse.radix.node import Node
from perilune.rehearse.radix.policy import Rank

LEAST_QUEUED: Final = 1024
"""Entries of a queue that are not worth sweeping."""


class Pools:
    """KV tokens and state slots: free + cached + held by requests = the pool.

    The queues of what can be evicted are sorted lazily: a leaf or state is looked at again when its turn comes, and
    goes back if it was used since, or drops out if it is locked; whoever unlocks it queues it again.
    """

    def __init__(self, *, tokens: int, page: int, slots: int | None, rank: Rank | None) -> None:
        self.page = page
        self.tokens = self.tokens_free = tokens // page * page
        self.tokens_cached = 0  # evictable and locked
        self.tokens_evictable = 0
        self.hybrid = slots is not None
        self.slots = self.slots_free = slots or 0
        self.slots_cached = 0
        self.slots_evictable = 0
        self._root = Node(None, Key(), 0, 0, 0, 0)
        self._rank = rank
        self._leaves: list[tuple[int, Node]] = []  # a heap by a rank that was true when the leaf was queued
        self._states: list[tuple[int, Node]] = []
        self._most_queued = LEAST_QUEUED

    def _lock(self, node: Node, above: Node) -> None:
        """Count one more request that needs the tokens from below `above` (an ancestor) down to `node`."""
        up = node
        while up is not above:
            if not up.locks:
                self.tokens_evictable -= up.end - up.start
            up.locks += 1
            up = up.parent

    def _unlock(self, node: Node) -> None:
        up = node
        root = self._root
        while up is not root:
            up.locks -= 1
            if not up.locks:
                self.tokens_evictable += up.end - up.start
                if not up.children:
                    self._queue_leaf(up)
            up = up.parent

    def _lock_state(self, node: Node) -> None:
        if node.state and not node.state_locks:
            self.slots_evictable -= 1
        node.state_locks += 1

    def _unlock_state(self, node: Node) -> None:
        node.state_locks -= 1
        if node.state and not node.state_locks:
            self.slots_evictable += 1
            self._queue_state(node)

    def evict_tokens(self, free: int) -> bool:
        """Evict leaves, the first by the policy first, until so many tokens are free. A leaf's state goes with it."""
        queue, rank = self._leaves, self._rank
        while self.tokens_free < free:
            if not queue:
                return False
            ranked, node = queue[0]
            if node.children or node.locks or node.gone:
                heappop(queue)
                node.queued = False
                continue
            now = node.used if rank is None else rank(node)
            if now != ranked:
                heapreplace(queue, (now, node))
                continue
            heappop(queue)
            node.queued = False
            self._drop_leaf(node)
        return True

    def evict_states(self, free: int) -> bool:
        """Evict states, the least recently used first, until so many slots are free.

        A leaf goes with its state; of a node inside the tree, or in use, only the state goes and its tokens stay.
        """
        queue = self._states
        while self.slots_free < free:
            if not queue:
                return False
            used, node = queue[0]
            if not node.state or node.state_locks:
                heappop(queue)
                node.state_queued = False
            elif node.state_used != used:
                heapreplace(queue, (node.state_used, node))
            else:
                heappop(queue)
                node.state_queued = False
                if not node.children and not node.locks:
                    self._drop_leaf(node)
                else:
                    self._drop_state(node)
        return True

    def _drop_state(self, node: Node) -> None:
        node.state = False
        self.slots_free += 1
        self.slots_cached -= 1
        self.slots_evictable -= 1

    def _drop_leaf(self, node: Node) -> None:
        size = node.end - node.start
        self.tokens_free += size
        self.tokens_cached -= size
        self.tokens_evictable -= size
        if node.state:
            self._drop_state(node)
        parent = node.parent
        del parent.children[node.first]
        node.gone = True
        if not parent.children and not parent.locks and parent is not self._root:
            self._queue_leaf(parent)

    def _queue_leaf(self, node: Node) -> None:
        if node.queued:
            return
        node.queued = True
        rank = self._rank
        heappush(self._leaves, (node.used if rank is None else rank(node), node))
        if len(self._leaves) > self._most_queued:
            self._sweep()

    def _queue_state(self, node: Node) -> None:
        if node.state_queued:
            return
        node.state_queued = True
        heappush(self._states, (node.state_used, node))
        if len(self._states) > self._most_queued:
            self._sweep()

    def _sweep(self) -> None:
        """Forget what was evicted by way of the other queue."""
        self._leaves[:] = [entry for entry in self._leaves if not entry[1].gone]
        for _, node in self._states:
            node.state_queued = node.state
        self._states[:] = [entry for entry in self._states if entry[1].state]
        heapify(self._leaves)
        heapify(self._states)
        self._most_queued = 2 * max(len(self._leaves), len(self._states)) + LEAST_QUEUED
