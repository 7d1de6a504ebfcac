"""The radix tree: what is found in it, and how it grows.

The rules are those of `UnifiedRadixCache` in SGLang 0.5.23 with its full-attention and mamba components, which
serves a hybrid model unless an option selects another cache (sglang/srt/mem_cache/registry.py,
unified_radix_cache.py, unified_cache/unified_tree_core.py, unified_cache/components/full.py and mamba.py).
"""

from __future__ import annotations

from heapq import heappush
from typing import Final

from perilune.rehearse.radix.key import Key
from perilune.rehearse.radix.node import Node
from perilune.rehearse.radix.policy import Rank
from perilune.rehearse.radix.pools import Pools

TICK: Final = 1 << 24
"""Uses are numbered in steps of this, so that the nodes of one path can be told apart within a step."""


class RadixTree(Pools):
    """Prefixes by content, at page granularity.

    Without a state pool (`slots` None) every node ends a usable prefix; with one, only a node that keeps a state.
    """

    def __init__(
        self, *, tokens: int, page: int, slots: int | None, rank: Rank | None = None, max_states_per_path: int = -1
    ) -> None:
        super().__init__(tokens=tokens, page=page, slots=slots, rank=rank)
        self._limit = max_states_per_path
        self._clock = 0

    def peek(self, key: Key, limit: int, *, states: bool = True) -> int:
        """Leading tokens, at most `limit`, that a match would find now; nothing changes.

        Without `states`, tokens whose KV is there count although no state follows them.
        """
        node, best = self._root, 0
        every = not (states and self.hybrid)
        limit -= limit % self.page
        at = 0
        while at < limit and node.children:
            child = node.children.get(key.page_at(at, self.page))
            if child is None:
                break
            at = self._agreed(child, key, limit)
            if at < child.end:
                break
            node = child
            if node.state:
                best = at
        return at if every else best

    def touch(self, key: Key, limit: int) -> int:
        """As `peek`, but what is found counts as used and the tree is split, as when a schedule policy looks."""
        return self._find(key, limit)[0].end

    def _agreed(self, node: Node, key: Key, limit: int) -> int:
        end = min(node.end, limit)
        if node.key is key:
            return end
        return node.key.agreement(key, node.start, end) // self.page * self.page

    def _find(self, key: Key, limit: int) -> tuple[Node, int]:
        """The node that a match stops at, and the tokens whose KV matched; they may be more.

        The tree is split where the key leaves it. What is used is the path to the node found: deeper nodes, which
        no state follows, do not become younger; of the states only the one found does.
        """
        page, hybrid = self.page, self.hybrid
        limit -= limit % page
        node = best = self._root
        at = 0
        while at < limit and node.children:
            child = node.children.get(key.page_at(at, page))
            if child is None:
                break
            at = self._agreed(child, key, limit)
            node = self._split(child, at) if at < child.end else child
            if node.state or not hybrid:
                best = node
        self._clock = used = self._clock + TICK
        if best.state:
            best.state_used = used
        up, root = best, self._root
        while up is not root:
            up.used = used
            used -= 1
            up = up.parent
        return best, at

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node in two and return the upper part. State and its locks stay below; both count as used now."""
        parent = node.parent
        self._clock += 2 * TICK
        upper = Node(parent, node.key, node.first, node.start, at, self._clock - TICK)
        upper.locks, upper.hits, upper.priority, upper.history = node.locks, node.hits, node.priority, node.history
        parent.children[node.first] = upper
        node.parent, node.first, node.start, node.used = upper, node.key.page_at(at, self.page), at, self._clock
        upper.children = {node.first: node}
        if self._rank is not None and node.queued:  # a tail that starts later may rank lower under tlru
            heappush(self._leaves, (self._rank(node), node))
        return upper

    def _insert(self, key: Key, end: int, owned_from: int, counted_to: int, *, state: bool, priority: int = 0) -> Node:
        """Put [0, end), whole pages, of a request into the tree; `state` is one slot of the request to keep with it.

        Of the tokens after `owned_from`, which are the request's own, those that are there already are freed. A
        slot is freed where the node has a state, which then only becomes younger.
        """
        page = self.page
        node, at = self._root, 0
        while at < end and node.children:
            child = node.children.get(key.page_at(at, page))
            if child is None:
                break
            self._clock += TICK
            child.used = self._clock
            at = self._agreed(child, key, end)
            node = self._split(child, at) if at < child.end else child
            if priority > node.priority:
                node.priority = priority
            if at > counted_to:
                node.hits += 1
        if at > owned_from:
            self.tokens_free += at - owned_from
        if at < end:
            node = self._append(node, key, at, end)
            node.priority = priority
            node.hits = 1 if end > counted_to else 0
        if state:
            self._keep(node)
        return node

    def _append(self, parent: Node, key: Key, start: int, end: int) -> Node:
        self._clock = used = self._clock + TICK
        first = key.page_at(start, self.page)
        node = Node(parent, key, first, start, end, used)
        if parent.children:
            parent.children[first] = node
        else:
            parent.children = {first: node}
        self.tokens_evictable += end - start
        self.tokens_cached += end - start
        if self._rank is not None:
            up, root = parent, self._root
            while up.history < end and up is not root:
                up.history = end
                up = up.parent
        self._queue_leaf(node)
        return node

    def _keep(self, node: Node) -> None:
        """Leave one slot of a request with a node, or free it where a state is already (or at the root)."""
        if node is self._root:
            self.slots_free += 1
            return
        self._clock += TICK
        node.state_used = self._clock
        if node.state:
            self.slots_free += 1
            return
        node.state = True
        self.slots_cached += 1
        if not node.state_locks:
            self.slots_evictable += 1
            self._queue_state(node)
        if self._limit >= 0:
            self._thin(node)

    def _thin(self, tail: Node) -> None:
        """`--mamba-max-states-per-path`: drop the shallowest states beyond it, except at forks and locked."""
        holders = []
        node, root = tail, self._root
        while node is not root:
            if node.state:
                holders.append(node)
            node = node.parent
        excess = len(holders) - self._limit
        for holder in reversed(holders):
            if excess <= 0 or holder is tail:
                return
            if holder.state_locks or len(holder.children) != 1:
                continue
            self._drop_state(holder)
            excess -= 1
