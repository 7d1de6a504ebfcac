"""The prefix cache of one attention-DP worker, over its KV pool and its state pool."""

from __future__ import annotations

from collections.abc import Iterable

from perilune.rehearse.radix.claim import Claim
from perilune.rehearse.radix.key import Key


class RadixCache:
    """Tokens and slots: free + cached (evictable or locked) + held by requests = the pool, at every moment.

    Order of calls for one request, as the scheduler makes them:
    `match` -> (`lock`, or `unmatch` when it is not admitted) -> `take_slots` -> for every prefill chunk `allocate_tokens`,
    then after the chunk's forward `checkpoint` -> decode: `allocate_tokens` for new pages -> `finish`, or `retract`.
    """

    tokens: int  # the KV pool, logical tokens of one worker (rows x DCP)
    tokens_free: int
    tokens_evictable: int  # cached and not locked: what admission may count on besides the free ones
    slots: int  # the state pool; 0 for a model without state
    slots_free: int
    slots_evictable: int
    page: int  # tokens of the allocator's page: page_size x dcp_size
    slots_per_request: int  # slots a running request holds itself: its own and its tracking buffers

    def peek(self, key: Key, limit: int) -> int:
        """Tokens a match would find, changing nothing (for routers and cache-aware schedule policies)."""
        raise NotImplementedError

    def match(self, claim: Claim, limit: int) -> int:
        """Leading tokens found, at most `limit` (the engine passes the prompt length less one).

        Sets `claim.node`, `claim.cached` and `claim.branch`; where a state snapshot is matched the request's own
        slot is taken at once for the copy (evicting a state if none is free).
        """
        raise NotImplementedError

    def unmatch(self, claim: Claim) -> None:
        """The request was not admitted after all: gives the slot of the match back."""
        raise NotImplementedError

    def lock(self, claim: Claim) -> None:
        """Keep the matched path from being evicted. `tokens_evictable` shrinks by what nobody else had locked."""
        raise NotImplementedError

    def unlock(self, claim: Claim) -> None:
        """Let the locked path be evicted again."""
        raise NotImplementedError

    def take_slots(self, claims: Iterable[Claim]) -> bool:
        """Fill up the slots of the requests of a new batch, evicting states for all of them first.

        False when not even eviction gives enough; nothing is taken then.
        """
        raise NotImplementedError

    def allocate_tokens(self, tokens: int) -> bool:
        """Take whole pages (a multiple of `page`), evicting when short. False when short even then: retract."""
        raise NotImplementedError

    def free_tokens(self, tokens: int) -> None:
        """Give whole pages back that a request holds beyond what the tree owns."""
        raise NotImplementedError

    def checkpoint(self, claim: Claim, start: int, end: int) -> None:
        """A chunk of prefill [start, end) was computed: insert up to its snapshot and move the lock there."""
        raise NotImplementedError

    def finish(self, claim: Claim, prompt: int, length: int) -> None:
        """The request ended with `length` tokens of KV, `prompt` of them prefilled: insert what a snapshot allows,
        free the rest of its pages (ceil(length / page) of them in all) and its slots."""
        raise NotImplementedError

    def retract(self, claim: Claim, length: int) -> None:
        """The request lost its place with `length` tokens of KV: nothing is inserted, pages and slots come back."""
        raise NotImplementedError
