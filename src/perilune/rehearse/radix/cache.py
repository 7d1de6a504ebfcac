"""The prefix cache of one attention-DP worker as its scheduler uses it: who holds what, from match to finish.

Source: sglang/srt/mem_cache/unified_radix_cache.py (`checkpoint_into_tree`), mem_cache/common.py (`match_kv_cache`,
`release_kv_cache`), mem_cache/allocation.py (`ensure_mamba_capacity`), unified_cache/components/mamba.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perilune.errors import PeriluneError, UnusableInput
from perilune.rehearse.radix.claim import Claim
from perilune.rehearse.radix.key import Key
from perilune.rehearse.radix.node import Node
from perilune.rehearse.radix.policy import rank_of
from perilune.rehearse.radix.snapshots import Snapshots
from perilune.rehearse.radix.tree import RadixTree


class OutOfSlots(PeriluneError):
    """The state pool is too small for what already runs; the engine stops with an assertion here."""


class RadixCache(RadixTree):
    """Tokens and slots: free + cached (evictable or locked) + held by requests = the pool, at every moment.

    Order of calls for one request, as the scheduler makes them:
    `match`, then `unmatch` when it is not admitted, else `lock`, `take_slots`; for every prefill chunk
    `allocate_tokens` and, after the chunk's forward, `checkpoint`; in decode `allocate_tokens` for new pages;
    `finish` or `retract`. A request that ends with its prefill is finished instead of checkpointed.

    The temporary second slot of `extra_buffer_lazy`, which the engine takes without evicting and gives back within
    two steps, is not counted.
    """

    def __init__(
        self,
        *,
        tokens: int,
        page: int,
        slots: int | None = None,
        snapshots: Snapshots | None = None,
        skip_decode_lock: bool = False,
        max_states_per_path: int = -1,
        policy: str = "lru",
        policy_config: Mapping[str, Any] | None = None,
        disabled: bool = False,
    ) -> None:
        """`tokens`, `slots`: the pools of one worker; `page`: page_size x dcp_size; `slots` None without states.

        A hybrid model needs `snapshots` unless `disabled` (`--disable-radix-cache`), where nothing is ever kept.
        """
        super().__init__(
            tokens=tokens,
            page=page,
            slots=slots,
            rank=rank_of(policy, policy_config),
            max_states_per_path=max_states_per_path,
        )
        if self.hybrid and snapshots is None and not disabled:
            raise ValueError("a state pool needs to know where states are kept")
        if self.hybrid and snapshots is not None and not snapshots.buffers and page > 1:
            raise ValueError("no_buffer keeps the state at any length and so needs pages of one token")
        self.disabled = disabled
        self.snapshots = None if disabled or not self.hybrid else snapshots
        buffers = self.snapshots.buffers if self.snapshots is not None else 0
        self.slots_per_request = 1 + buffers if self.hybrid else 0
        self._skip_decode_lock = skip_decode_lock
        self._block_tokens = 0

    # Admission

    def match(self, claim: Claim, limit: int) -> int:
        """Leading tokens found, at most `limit` (the engine passes the prompt's length less one).

        Sets `claim.node`, `claim.cached` and `claim.branch`. Where a state is matched the request's own slot is
        taken at once, to copy it into, evicting another state if none is free.
        """
        root = self._root
        if self.disabled:
            claim.node = root
            return 0
        if claim.key.block_tokens != self._block_tokens and claim.key.blocks:
            self._set_block_tokens(claim.key)
        node, reached = self._find(claim.key, limit)
        claim.node = node
        claim.cached = node.end
        snapshots = self.snapshots
        if snapshots is not None:
            branch = reached // snapshots.grid * snapshots.grid
            claim.branch = branch if branch > node.end else 0
            if node is not root and not claim.slots:
                if not self.slots_free:
                    self._lock_state(node)
                    self._make_slot()
                    self._unlock_state(node)
                self.slots_free -= 1
                claim.slots = 1
        return node.end

    def _set_block_tokens(self, key: Key) -> None:
        if self._block_tokens:
            raise UnusableInput(
                f"Blocks of {key.block_tokens} tokens after blocks of {self._block_tokens}: one rehearsal can only "
                "compare prefixes of one block size.",
                fix="Use traces of one block size.",
            )
        self._block_tokens = key.block_tokens

    def _make_slot(self) -> None:
        if not self.evict_states(1):
            raise OutOfSlots(
                f"None of the {self.slots} state slots is free or evictable.",
                fix="Raise --max-mamba-cache-size or lower --max-running-requests.",
            )

    def unmatch(self, claim: Claim) -> None:
        """The request was not admitted after all: the slot of the match comes back."""
        self.slots_free += claim.slots
        claim.slots = claim.cached = 0
        claim.node = self._root

    def lock(self, claim: Claim) -> None:
        """Keep the matched path, and its state, from being evicted."""
        node, root = claim.node, self._root
        if node is not root:
            self._lock(node, root)
            if self.hybrid:
                self._lock_state(node)
                claim.state_locked = True

    def unlock(self, claim: Claim) -> None:
        """Let the locked path be evicted again."""
        node, root = claim.node, self._root
        if node is not root:
            if claim.state_locked:
                self._unlock_state(node)
                claim.state_locked = False
            self._unlock(node)

    def take_slots(self, claims: Sequence[Claim]) -> bool:
        """Fill up the slots of the requests of a new batch, evicting states for all of them first.

        False when eviction does not give enough; nothing is taken then.
        """
        each = self.slots_per_request
        needed = each * len(claims)
        for claim in claims:
            needed -= claim.slots
        if needed > self.slots_free and not self.evict_states(needed):
            return False
        self.slots_free -= needed
        for claim in claims:
            claim.slots = each
        return True

    def allocate_tokens(self, tokens: int, room: int = 0) -> bool:
        """Take whole pages, evicting when short; False, with nothing taken, when short even then.

        The engine evicts for `room` more tokens than it takes: a page for each request of a prefill batch or of a
        decode step that needs new pages, less what it takes exactly.
        """
        if self.tokens_free < tokens + room:
            self.evict_tokens(tokens + room)
            if self.tokens_free < tokens:
                return False
        self.tokens_free -= tokens
        return True

    def free_tokens(self, tokens: int) -> None:
        """Give back whole pages that a request holds beyond those of its length (speculation's, say)."""
        self.tokens_free += tokens

    # Keeping

    def checkpoint(self, claim: Claim, start: int, end: int) -> None:
        """A chunk of prefill [start, end) was computed: keep it up to its state, and move the lock there.

        A request with tracking buffers hands one over and takes a free slot in its place, else it copies its state
        into one; the lazy strategy lets go of the matched state before it evicts for that.
        """
        snapshots = self.snapshots
        if snapshots is None:
            if self.disabled:
                return
            kept = end
        else:
            kept = snapshots.of_chunk(start, end, claim.branch)
            if not kept:
                return
            if not self.slots_free:
                if snapshots.lazy and claim.state_locked:
                    self._unlock_state(claim.node)
                    claim.state_locked = False
                self._make_slot()
            self.slots_free -= 1
        kept -= kept % self.page
        hybrid = snapshots is not None
        node = self._insert(claim.key, kept, claim.cached, claim.inserted, state=hybrid)
        if kept > claim.inserted:
            claim.inserted = kept
        self._move_lock(claim, node, with_state=hybrid and not self._skip_decode_lock)
        claim.cached = kept

    def _move_lock(self, claim: Claim, node: Node, *, with_state: bool) -> None:
        old, root = claim.node, self._root
        if claim.state_locked:
            self._unlock_state(old)
            claim.state_locked = False
        if node is not old:
            above = old if self._is_below(node, old) else root
            self._lock(node, above)
            if above is not old:
                self._unlock(old)
        claim.node = node
        if with_state and node is not root:
            self._lock_state(node)
            claim.state_locked = True

    @staticmethod
    def _is_below(node: Node, other: Node) -> bool:
        depth = other.end
        up = node
        while up.end > depth:
            up = up.parent
        return up is other

    def finish(self, claim: Claim, start: int, prompt: int, length: int) -> None:
        """The request ended with `length` tokens of KV, `prompt` of them prefilled.

        What a state allows is kept; the rest of its ceil(length / page) pages and its slots come free. `start` is
        where the last prefill chunk began: it counts only for a request that ends with its prefill.
        """
        page, snapshots = self.page, self.snapshots
        kept = 0
        if snapshots is not None:
            if length > prompt:
                kept = snapshots.of_decode(prompt, length)
            else:
                kept = snapshots.of_chunk(start, prompt, claim.branch)
            if snapshots.buffers and kept <= claim.cached:
                kept = 0  # that state was handed over when the chunk was checkpointed
        elif not self.disabled:
            kept = length
        kept -= kept % page
        if kept:
            self._insert(claim.key, kept, claim.cached, claim.inserted, state=snapshots is not None)
            if snapshots is not None:
                claim.slots -= 1
            elif 0 < (head := prompt - prompt % page) < kept:
                self._insert(claim.key, head, head, head, state=False, priority=1)
            claim.cached = kept
        self.retract(claim, length)

    def retract(self, claim: Claim, length: int) -> None:
        """The request gives up its place with `length` tokens of KV: nothing more is kept, all comes free."""
        page = self.page
        self.tokens_free += -(-length // page) * page - claim.cached
        self.slots_free += claim.slots
        self.unlock(claim)
        claim.slots = claim.cached = claim.inserted = 0
        claim.node = self._root
