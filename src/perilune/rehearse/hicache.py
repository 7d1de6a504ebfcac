"""HiCache: prefixes kept in host memory (L2) and in a store behind it (L3), and brought back when a prompt asks.

Rules of SGLang 0.5.23 (mem_cache/unified_radix_cache.py, unified_cache/unified_tree_core.py,
hybrid_cache/hybrid_pool_assembler.py, pool_host/base.py):
- `write_through` copies every prefix to the host as it enters the radix tree, `write_through_selective` once another
  request has come along it, `write_back` when the device evicts it. States go with their prefixes.
- A host hit beyond the device's is loaded when the request is admitted, into pages and a state slot that are evicted
  for it; below 10 tokens it is not worth it, unless a state comes with it. It then belongs to the device's tree again.
- The forward pass waits for loads layer by layer, so a batch takes the longer of both.
- L3 gets all that the host gets. A request that could use 256 tokens of it, beyond device and host, fetches them when
  it arrives; `best_effort` takes what has come when its turn is there, `wait_complete` waits for all of it, `timeout`
  for 1 s and 0.25 s per 1,024 tokens.

The host's copies are a tree of their own here: a prefix that the device has as well is never older on the host, so
that what the host evicts is what only it has, as in the engine. A fetch that is cut off leaves nothing behind, as
the state comes last. What the store keeps is not limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from perilune.errors import UnusableInput
from perilune.plan.planned import PlannedPool
from perilune.rehearse.radix import Claim, Key, RadixCache
from perilune.rehearse.radix.node import Node
from perilune.rehearse.radix.tree import RadixTree
from perilune.rehearse.ticks import SECOND

WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
FetchPolicy = Literal["best_effort", "wait_complete", "timeout"]

LOAD_BACK_TOKENS: Final = 10
FETCH_TOKENS: Final = 256
FETCH_TIMEOUT: Final = SECOND
FETCH_TIMEOUT_PER_1024_TOKENS: Final = SECOND // 4
SELECTIVE_HITS: Final = 2
STORE_TOKENS: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class HostSettings:
    """HiCache of one attention-DP rank: L2 in logical tokens and state slots, and the policies as resolved."""

    tokens: int
    slots: int
    write_policy: WritePolicy
    storage: bool = False
    fetch_policy: FetchPolicy = "timeout"

    def patience(self, tokens: int) -> int | None:
        """Ticks that admission waits for a fetch of so many tokens; None for however long it takes."""
        if self.fetch_policy == "best_effort":
            return 0
        if self.fetch_policy == "wait_complete":
            return None
        return FETCH_TIMEOUT + tokens * FETCH_TIMEOUT_PER_1024_TOKENS // 1024


def host_settings(item: PlannedPool) -> HostSettings | None:
    """HiCache of a planned pool that boots; None where it is off.

    A size in GB is shared between KV and states in proportion to their pools on the device, a ratio multiplies both.
    """
    v = item.resolved.values
    sizing, terms = item.ledger.sizing, item.ledger.terms
    if not v["enable_hierarchical_cache"] or v["disable_radix_cache"] or sizing is None or terms is None:
        return None
    if v["hicache_host_memory_mode"] != "cache":
        raise UnusableInput(
            "--hicache-host-memory-mode buffer_only keeps no prefixes on the host, which a rehearsal does not model.",
            where=f"the {item.pool.role} pool",
            fix="Rehearse it with --hicache-host-memory-mode cache.",
        )
    slots = sizing.slots or 0
    ratio = v["hicache_ratio"]
    if v["hicache_size"]:
        kv = sizing.tokens * max(stage.kv_cell for stage in terms.stages)
        state = slots * terms.pool.slot_bytes
        ratio = v["hicache_size"] * 10**9 / (kv + state)
    return HostSettings(
        tokens=int(sizing.logical_tokens * ratio),
        slots=int(slots * ratio),
        write_policy=_choice(v, "hicache_write_policy", get_args(WritePolicy)),
        storage=v["hicache_storage_backend"] is not None,
        fetch_policy=_choice(v, "hicache_storage_prefetch_policy", get_args(FetchPolicy)),
    )


def _choice(values: Mapping[str, Any], name: str, known: tuple[Any, ...]) -> Any:
    """A resolved value of a flag with choices, which the engine's parser has already checked."""
    return known[known.index(values[name])]


class Tier(RadixTree):
    """Prefixes in host memory or in the store: nothing is ever locked, the least recently used goes first."""

    def keep(self, key: Key, end: int, *, state: bool) -> bool:
        """Copy [0, end) of a request, and the state after it; False, with nothing changed but evictions, if too big."""
        at = self.peek(key, end, states=False)
        if at < end or state:
            node = self._insert(key, at, at, at, state=False) if at else self._root
            if not self._make_room(node, end - at, 1 if state else 0):
                return False
            self.tokens_free -= end - at
            if state:
                self.slots_free -= 1
            self._insert(key, end, at, end, state=state)
        return True

    def _make_room(self, node: Node, tokens: int, slots: int) -> bool:
        """Evict, but not along the path to `node`, until so much is free."""
        self._lock(node, self._root)
        room = (self.slots_free >= slots or self.evict_states(slots)) and (
            self.tokens_free >= tokens or self.evict_tokens(tokens)
        )
        self._unlock(node)
        return room


def new_store(page: int, *, states: bool) -> Tier:
    """An L3 store, which the ranks and replicas that use one backend share."""
    return Tier(tokens=STORE_TOKENS, page=page, slots=STORE_TOKENS if states else None)


class HostedCache(RadixCache):
    """A radix cache whose prefixes are also kept on the host, and perhaps in a store.

    `match` loads what the host has beyond the device; `take_loads` tells what that moved.
    """

    def __init__(self, *, host: HostSettings, store: Tier | None = None, **device: Any) -> None:
        """`device` is what `RadixCache` takes."""
        super().__init__(**device)
        self.settings = host
        self.host = Tier(tokens=host.tokens, page=self.page, slots=host.slots if self.hybrid else None)
        self.store = store if host.storage else None
        self._policy = host.write_policy
        self._loads: list[int] = []

    def match(self, claim: Claim, limit: int) -> int:
        """Leading tokens found, at most `limit`, those loaded from the host included."""
        found = super().match(claim, limit)
        ahead = self.host.peek(claim.key, limit) - found
        if ahead <= 0 or (ahead < LOAD_BACK_TOKENS and not self.hybrid):
            return found
        if not self._load(claim, self.host.touch(claim.key, limit)):
            return found
        return super().match(claim, limit)

    def take_loads(self) -> list[int]:
        """KV tokens of each load since the last call; a state came with each, where there are states."""
        loads, self._loads = self._loads, []
        return loads

    def stored(self, key: Key, limit: int) -> int:
        """Length up to which a fetch from the store is worth it; 0 for none."""
        if self.store is None:
            return 0
        end = self.store.peek(key, limit)
        here = max(self.peek(key, limit), self.host.peek(key, limit))
        return end if end - here >= FETCH_TOKENS else 0

    def fetched(self, key: Key, end: int) -> int:
        """A fetch from the store has come; returns the tokens that the host gets by it."""
        before = self.host.peek(key, end)
        return end - before if self.host.keep(key, end, state=self.hybrid) else 0

    def _load(self, claim: Claim, end: int) -> bool:
        """Bring [0, end) and the state after it back to the device, keeping what is there from being evicted."""
        key, node, root = claim.key, claim.node, self._root
        hybrid = self.hybrid
        self._lock(node, root)
        if node.state:
            self._lock_state(node)
        room = not hybrid or self.slots_free > 0 or self.evict_states(1)
        have = self.peek(key, end, states=False)
        while room and self.tokens_free < end - have:  # what follows the last state is not locked
            room = self.evict_tokens(end - have)
            have = self.peek(key, end, states=False)
        if node.state:
            self._unlock_state(node)
        self._unlock(node)
        if not room:
            return False
        self.tokens_free -= end - have
        if hybrid:
            self.slots_free -= 1
        super()._insert(key, end, have, end, state=hybrid)
        self._loads.append(end - have)
        return True

    def _insert(self, key: Key, end: int, owned_from: int, counted_to: int, *, state: bool, priority: int = 0) -> Node:
        node = super()._insert(key, end, owned_from, counted_to, state=state, priority=priority)
        if self._policy == "write_through":
            self._back_up(key, end, state=state)
        elif self._policy == "write_through_selective":
            up, root = node, self._root
            while up is not root and up.hits < SELECTIVE_HITS:
                up = up.parent
            if up is not root:
                self._back_up(key, up.end, state=up.state)
        return node

    def _drop_leaf(self, node: Node) -> None:
        if self._policy == "write_back":
            self._back_up(node.key, node.end, state=node.state)
        super()._drop_leaf(node)

    def _drop_state(self, node: Node) -> None:
        if self._policy == "write_back" and node.children:
            self._back_up(node.key, node.end, state=True)
        super()._drop_state(node)

    def _back_up(self, key: Key, end: int, *, state: bool) -> None:
        if self.host.keep(key, end, state=state and self.hybrid) and self.store is not None:
            self.store.keep(key, end, state=state and self.hybrid)
