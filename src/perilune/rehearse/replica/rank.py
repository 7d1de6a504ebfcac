"""Admission on one attention-DP rank: which waiting requests are prefilled next, and what the others wait for.

The rules are those of SGLang 0.5.23: `managers/schedule_policy.py` (`PrefillAdder`, `SchedulePolicy`),
`mem_cache/prefill_budget.py` and `managers/scheduler.py` (`_get_new_batch_prefill_raw`).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from perilune.rehearse.engine import Engine
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.budget import Pass
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.live import Live

SORTED_QUEUE_MAX = 128
"""Longest queue that `lpm` sorts; a longer one is served in order of arrival (WAITING_QUEUE_PREFIX_MATCH_MAX)."""


class Door(Protocol):
    """What a rank tells of those who wait and of those who were let in: a `Tally`, where they count as running."""

    waits: dict[str, int]

    def admitted(self, live: Live, now: int) -> None:
        """A request got its slots and its first pages."""


class Rank:
    """The queue, both pools and the prefill in progress of one rank. PP micro-batches share them."""

    __slots__ = (
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

    def settle(self, now: int) -> None:
        """Charge the time since the last call to what the queue waited for; call before queue or cause change."""
        if self.queue and now > self._since:
            waited = len(self.queue) * (now - self._since)
            self.queue_area += waited
            waits = self.tally.waits
            waits[self.cause] = waits.get(self.cause, 0) + waited
        self._since = now

    @property
    def room(self) -> int:
        """KV tokens that can be had, evicting what can be."""
        return self.cache.tokens_free + self.cache.tokens_evictable

    def admit(self, batch: Batch, landing: Flight | None, now: int) -> Flight | None:
        """The next prefill of a micro-batch, if there is one; `landing` is its prefill still in flight."""
        queue = self.queue
        running = batch.count + (len(landing.done) if landing is not None else 0)
        if not running:
            batch.full = False
        if self.chunked is None and (batch.full or not queue):
            return None
        engine = self.engine
        seats = min(engine.micro_batch - running, engine.requests - self.rows)
        if self.chunked is None and seats <= 0:
            batch.full = True
            self._wait_for(engine.limit_cause, now)
            return None
        pass_ = Pass(self, batch, landing, running)
        if self.chunked is not None:
            pass_.resume(self.chunked)
            seats = min(engine.micro_batch - running - pass_.flight.requests, engine.requests - self.rows)
        if queue:
            self._sort()
            self._fill(pass_, seats, running, batch, now)
        flight = pass_.flight
        return flight if flight.requests else None

    def _fill(self, pass_: Pass, seats: int, running: int, batch: Batch, now: int) -> None:
        """Admit from the head of the queue until something is spent, and say what the rest waits for."""
        queue, engine = self.queue, self.engine
        most = engine.prefill_max_requests
        taken = 0
        cause = "prefill"
        while queue:
            if pass_.spent:
                break
            if taken >= seats:
                batch.full = True
                cause = engine.limit_cause
                break
            if most is not None and pass_.flight.requests >= most:
                break
            refused = pass_.add(queue[0])
            if refused == "prefill":
                break
            if refused is not None:
                batch.full = pass_.flight.requests > 0 or running > 0
                cause = refused
                break
            self.settle(now)
            live = queue.popleft()
            taken += 1
            self.rows += 1
            self.tally.admitted(live, now)
            if pass_.remaining <= 0:
                batch.full = True
                cause = "kv_tokens"
                break
        self._wait_for(cause, now)

    def _wait_for(self, cause: str, now: int) -> None:
        if cause != self.cause:
            self.settle(now)
            self.cause = cause

    def _sort(self) -> None:
        policy, queue = self.engine.schedule_policy, self.queue
        if policy == "lpm" and 1 < len(queue) <= SORTED_QUEUE_MAX:
            peek = self.cache.peek
            self.queue = deque(sorted(queue, key=lambda live: -peek(live.claim.key, live.length - 1)))
        elif policy == "lof" and len(queue) > 1:
            self.queue = deque(sorted(queue, key=lambda live: -live.osl))
