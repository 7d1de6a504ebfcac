"""The router's own memory of which worker has seen which prompt: one tree of prompts, shared by all workers.

The rules are those of the SGLang router's `cache_aware` policy (sgl-model-gateway `src/policies/tree.rs`): a node is
a run of text and the workers that were sent it; a match reports the deepest node reached, also where it diverges
within that node, and the first worker that node was made for; a worker's share is cut back by dropping the leaves it
used least recently. The tree never hears from the workers, so it is only an estimate of their caches.

The router compares characters. Here a prompt is its block ids, so two prompts part at a block boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

Blocks = tuple[int, ...]

MATCHES_PER_TOUCH: Final = 8
"""A match refreshes the age of what it found once in so many ticks of the tree's counter (`tree.rs`)."""


@dataclass(slots=True, eq=False)
class Node:
    """A run of blocks below its parent. `seen` holds, by worker, when it last ended a prompt here (0 for never)."""

    blocks: Blocks
    parent: Node | None
    owner: int  # the worker that a match here names first
    children: dict[int, Node] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)


class PrefixTree:
    """Prompts by worker. Sizes are blocks; `limit` is the most a worker keeps after `evict`."""

    def __init__(self) -> None:
        self.root = Node((), None, -1)
        self.sizes: dict[int, int] = {}
        self._clock = 0
        self._aged: dict[int, dict[Node, None]] = {}  # by worker: nodes that ended a prompt, least recent first

    def match(self, blocks: Blocks) -> tuple[int, int]:
        """The leading blocks that the tree has seen, and a worker that was sent them (-1 for none)."""
        node = self.root
        at = 0
        end = len(blocks)
        while at < end:
            child = node.children.get(blocks[at])
            if child is None:
                break
            node = child
            run = child.blocks
            size = len(run)
            if blocks[at : at + size] != run:
                at += _shared(blocks, at, run)
                break
            at += size
        worker = node.owner
        if worker not in node.seen:
            worker = next(iter(node.seen), -1)
            node.owner = worker
        if not self._clock % MATCHES_PER_TOUCH and worker >= 0 and node is not self.root:
            self._touch(node, worker)
        self._clock += 1
        return at, worker

    def insert(self, blocks: Blocks, worker: int) -> None:
        """Remember that `worker` was sent this prompt."""
        node = self.root
        at = 0
        end = len(blocks)
        while at < end:
            child = node.children.get(blocks[at])
            if child is None:
                child = Node(blocks[at:], node, worker)
                node.children[blocks[at]] = child
                node = child
                self._own(node, worker)
                break
            run = child.blocks
            size = len(run)
            if blocks[at : at + size] != run:
                child = _split(node, child, _shared(blocks, at, run))
                size = len(child.blocks)
            if worker not in child.seen:
                self._own(child, worker)
            node = child
            at += size
        if node is not self.root:
            self._touch(node, worker)
        self._clock += 1

    def evict(self, limit: int) -> None:
        """Drop what each worker used least recently until it keeps at most `limit` blocks."""
        for worker, size in self.sizes.items():
            if size > limit:
                self._evict(worker, limit)

    def forget(self, worker: int) -> None:
        """Drop all of one worker, as when it has left."""
        if self.sizes.get(worker):
            self._evict(worker, 0)

    def _own(self, node: Node, worker: int) -> None:
        node.seen[worker] = 0
        self.sizes[worker] = self.sizes.get(worker, 0) + len(node.blocks)

    def _touch(self, node: Node, worker: int) -> None:
        node.seen[worker] = self._clock
        aged = self._aged.get(worker)
        if aged is None:
            aged = self._aged[worker] = {}
        aged.pop(node, None)
        aged[node] = None

    def _evict(self, worker: int, limit: int) -> None:
        size = self.sizes[worker]
        for aged in list(self._aged[worker]):
            node: Node | None = aged
            if worker not in aged.seen:
                continue
            age = aged.seen[worker]
            # A parent left without children of this worker follows at once if it is as old.
            while node is not None and node.seen.get(worker, age + 1) <= age:
                if size <= limit:
                    self.sizes[worker] = size
                    return
                if any(worker in child.seen for child in node.children.values()):
                    break
                size -= len(node.blocks)
                node = self._drop(node, worker)
        self.sizes[worker] = size

    def _drop(self, node: Node, worker: int) -> Node | None:
        del node.seen[worker]
        self._aged[worker].pop(node, None)
        parent = node.parent
        if parent is not None and not node.seen and not node.children:
            del parent.children[node.blocks[0]]
        return parent if parent is not self.root else None


def _split(parent: Node, node: Node, at: int) -> Node:
    """Cut a node in two; the upper half takes its place and its workers."""
    upper = Node(node.blocks[:at], parent, node.owner, {node.blocks[at]: node}, dict(node.seen))
    parent.children[upper.blocks[0]] = upper
    node.blocks = node.blocks[at:]
    node.parent = upper
    return upper


def _shared(blocks: Sequence[int], at: int, run: Sequence[int]) -> int:
    """How many blocks of `run` the prompt holds from `at`."""
    count = 0
    for ours, theirs in zip(blocks[at : at + len(run)], run, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
