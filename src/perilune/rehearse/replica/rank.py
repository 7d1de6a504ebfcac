"""Admission on one attention-DP rank: which waiting requests are prefilled next, and what the others wait for.

The rules are those of SGLang 0.5.23: `managers/schedule_policy.py` (`PrefillAdder`, `SchedulePolicy`),
`mem_cache/prefill_budget.py` and `managers/scheduler.py` (`_get_new_batch_prefill_raw`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, Protocol

from perilune.rehearse.engine import Engine
from perilune.rehearse.live import Live
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.budget import Pass
from perilune.rehearse.replica.flight import Flight

SORTED_QUEUE_MAX: Final = 128
"""Longest queue that `lpm` sorts, and how many a refresh looks at (WAITING_QUEUE_PREFIX_MATCH_MAX)."""

REFRESH_INTERVAL: Final = 32
"""Passes between two refreshes of what waiting requests have in the cache (WAITING_PREFIX_REFRESH_INTERVAL)."""

SHARED_BEGINNING: Final = 32
"""Tokens that make a beginning a shared one (IN_BATCH_PREFIX_CACHING_*_THRESHOLD)."""


class Door(Protocol):
    """What a rank tells of those who wait and of those who were let in: a `Tally`, where they count as running."""

    waits: dict[str, int]

    def admitted(self, live: Live, now: int) -> None:
        """A request got its slots and its first pages."""


class Rank:
    """The queue, both pools and the prefill in progress of one rank. PP micro-batches share them."""

    __slots__ = (
        "_passes",
        "_since",
        "cache",
        "cause",
        "chunked",
        "engine",
        "prompts",
        "queue",
        "queue_area",
        "ratio",
        "rows",
        "tally",
        "unstashed",
    )

    def __init__(self, engine: Engine, tally: Door) -> None:
        self.engine = engine
        self.tally = tally
        self.cache: RadixCache = engine.new_cache()
        self.queue: deque[Live] = deque()
        self.chunked: Live | None = None  # the request whose prompt is computed in part
        self.unstashed = False  # its newest chunk is not in the tree yet
        self.rows = 0  # requests admitted and not gone
        self.prompts = 0  # prompt tokens of the requests it has, which is how a load balancer weighs it
        self.ratio = engine.ratio
        self.cause = "prefill"
        self.queue_area = 0  # requests times ticks, since it was last taken
        self._since = 0
        self._passes = 0

    def settle(self, now: int) -> None:
        """Charge the time since the last call to what the queue waited for; call before queue or cause change."""
        if self.queue and now > self._since:
            waited = len(self.queue) * (now - self._since)
            self.queue_area += waited
            waits = self.tally.waits
            waits[self.cause] = waits.get(self.cause, 0) + waited
        self._since = now

    def decay(self, steps: int) -> None:
        """So many decode steps were decided on: what running requests may still put out is trusted less."""
        engine = self.engine
        if engine.ratio_decay and steps:
            self.ratio = max(self.ratio - engine.ratio_decay * steps, engine.ratio_min)

    @property
    def room(self) -> int:
        """KV tokens that can be had, evicting what can be."""
        return self.cache.tokens_free + self.cache.tokens_evictable

    def admit(self, batch: Batch, landing: Flight | None, now: int) -> Flight | None:
        """The next prefill of a micro-batch, if there is one; `landing` is its prefill still in flight."""
        queue = self.queue
        if landing is not None:
            batch.merged(alone=landing.mixed or not batch.count, cut=landing.cut is not None)
            joining = [*batch.coming, *landing.done]
        else:
            joining = batch.coming
        running = batch.count + len(joining)
        if not running:
            batch.full = False
        if self.chunked is None and (batch.full or not queue):
            return None
        engine = self.engine
        seats = min(engine.micro_batch - running, engine.requests - self.rows)
        if self.chunked is None and seats <= 0:
            batch.full = True
            self.wait_for(engine.limit_cause, now)
            return None
        pass_ = Pass(engine, self.cache, self.ratio, batch, joining)
        resumed = self._resume(pass_)
        if resumed:
            seats = min(engine.micro_batch - running - 1, engine.requests - self.rows)
        cause = self._fill(pass_, seats + resumed, running, batch) if queue else None
        flight, short = pass_.commit(resumed)
        self._let_in(max(len(pass_.entries) - resumed, 0), now)
        if short is not None:
            batch.full = flight.requests > 0 or running > 0
            cause = short
        if cause is not None:
            self.wait_for(cause, now)
        return self._sent(flight)

    def _resume(self, pass_: Pass) -> int:
        """The prompt in progress goes first, once its newest chunk is in the tree; how many there are."""
        live = self.chunked
        if live is None:
            return 0
        if self.unstashed:
            self.cache.checkpoint(live.claim, live.start, live.done)
            self.unstashed = False
        pass_.resume(live)
        return 1

    def _fill(self, pass_: Pass, seats: int, running: int, batch: Batch) -> str:
        """Take requests from the head of the queue until something is spent; returns what the rest waits for."""
        engine = self.engine
        most = engine.prefill_max_requests
        self._sort()
        for live in self.queue:
            if pass_.spent and pass_.remaining > 0:
                break
            taken = len(pass_.entries)
            if taken >= seats:
                batch.full = True
                return engine.limit_cause
            if most is not None and taken >= most:
                break
            refused = pass_.add(live)
            if refused == "prefill":
                break
            if refused is not None:
                batch.full = len(pass_.entries) > 0 or running > 0
                return refused
            if pass_.remaining <= 0:
                batch.full = True
                return "kv_tokens"
        return "prefill"

    def _let_in(self, requests: int, now: int) -> None:
        """So many at the head of the queue are in the pass."""
        if requests:
            self.settle(now)
            self.rows += requests
            for _ in range(requests):
                live = self.queue.popleft()
                if live.first < 0 and not live.out:
                    live.cached = live.start
                self.tally.admitted(live, now)

    def _sent(self, flight: Flight) -> Flight | None:
        """The pass is made; a prompt that it leaves unfinished goes first in the next."""
        if not flight.requests:
            return None
        self.chunked = flight.cut
        self.unstashed = flight.cut is not None
        return flight

    def wait_for(self, cause: str, now: int) -> None:
        """From now on the queue waits for this."""
        if cause != self.cause:
            self.settle(now)
            self.cause = cause

    def _sort(self) -> None:
        """Put the queue in the order of the schedule policy, which may use the cache to find it."""
        policy, queue, cache = self.engine.schedule_policy, self.queue, self.cache
        if policy == "lpm" and not cache.disabled and len(queue) <= SORTED_QUEUE_MAX:
            self._sort_by_prefix()
            return
        if policy == "lof" and len(queue) > 1:
            self.queue = deque(sorted(queue, key=lambda live: -live.osl))
        if cache.disabled or not self.engine.refreshes:
            return
        if not self._passes % REFRESH_INTERVAL:
            for live in reversed(list(islice(self.queue, SORTED_QUEUE_MAX))):
                if live.request.blocks or live.out:
                    cache.touch(live.claim.key, live.length)
        self._passes += 1

    def _sort_by_prefix(self) -> None:
        """Longest cached prefix first; of those that share an uncached beginning all but the first come last."""
        cache = self.cache
        begun: set[tuple[int, ...]] = set()
        found: dict[Live, int] = {}
        for live in self.queue:
            request = live.request
            cached = cache.touch(live.claim.key, live.length)
            found[live] = -min(cached, live.length - 1)
            if cached <= SHARED_BEGINNING <= live.length and request.block_tokens:
                beginning = request.blocks[: -(-SHARED_BEGINNING // request.block_tokens)]
                if len(beginning) * request.block_tokens >= SHARED_BEGINNING:
                    if beginning in begun:
                        found[live] = 1
                    begun.add(beginning)
        self.queue = deque(sorted(self.queue, key=found.__getitem__))
