"""Admission on one attention-DP rank: which waiting requests are prefilled next, and what the others wait for.

The rules are those of SGLang 0.5.23: `managers/schedule_policy.py` (`PrefillAdder`, `SchedulePolicy`),
`mem_cache/prefill_budget.py` and `managers/scheduler.py` (`_get_new_batch_prefill_raw`).
"""

from __future__ import annotations

from collections import deque

from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.live import Live
from perilune.rehearse.tally import Tally
from perilune.rehearse.ticks import TOKEN

SORTED_QUEUE_MAX = 128
"""Longest queue that `lpm` sorts; a longer one is served in order of arrival (WAITING_QUEUE_PREFIX_MATCH_MAX)."""


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

    def __init__(self, engine: Engine, tally: Tally) -> None:
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
        waited = len(self.queue) * (now - self._since)
        if waited:
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
        pass_ = _Pass(self, batch, landing, running)
        if self.chunked is not None:
            pass_.resume(self.chunked)
            seats = min(engine.micro_batch - running - pass_.flight.requests, engine.requests - self.rows)
        if queue:
            self._sort()
            self._fill(pass_, seats, running, batch, now)
        flight = pass_.flight
        return flight if flight.requests else None

    def _fill(self, pass_: _Pass, seats: int, running: int, batch: Batch, now: int) -> None:
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


class _Pass:
    """The budgets of one pass over the queue: tokens to compute, and KV tokens promised."""

    __slots__ = ("chunk", "flight", "now_offset", "offset", "rank", "tokens")

    def __init__(self, rank: Rank, batch: Batch, landing: Flight | None, running: int) -> None:
        engine = rank.engine
        clip = engine.clip
        expected = batch.expected(clip) if batch.count else 0
        if landing is not None:
            for live in landing.done:
                expected += min(live.osl - live.out, clip)
        ratio = rank.ratio
        mixed = running if engine.mixed else 0
        self.rank = rank
        self.flight = Flight()
        self.offset = mixed + (expected if ratio == SHARE else -(-expected * ratio // SHARE))
        self.now_offset = mixed
        self.tokens = engine.max_prefill - mixed
        self.chunk = (engine.chunk if engine.chunk is not None else 1 << 60) - mixed

    @property
    def spent(self) -> bool:
        """Whether no more tokens may be computed in this pass."""
        return self.tokens <= 0 or self.chunk <= 0

    @property
    def remaining(self) -> int:
        """KV tokens that nobody holds or was promised."""
        return self.rank.room - max(self.offset, self.now_offset)

    def resume(self, live: Live) -> None:
        """The next chunk of the prompt in progress. It goes ahead even where the estimate says there is no room."""
        rank = self.rank
        cache, engine = rank.cache, rank.engine
        if rank.unstashed:
            cache.checkpoint(live.claim, live.start, live.done)
            rank.unstashed = False
        left = live.length - live.done
        room = rank.room - self.offset
        most = min(self.chunk, room) if room > 0 else self.chunk
        extend = min(left, most)
        if extend < left and engine.align > 1:
            extend = extend // engine.align * engine.align or extend
        extend = self._allocate(live, extend, left)
        if not extend:
            return
        last = extend == left
        self._charge(extend, min(live.osl, engine.clip) if last else 0)
        self.flight.take(live, extend, last=last)
        if last:
            rank.chunked = None
        else:
            rank.unstashed = True

    def add(self, live: Live) -> str | None:
        """Admit a waiting request; returns what it has to wait for when it cannot be."""
        rank = self.rank
        cache, engine = rank.cache, rank.engine
        claim, length = live.claim, live.length
        cached = cache.match(claim, length - 1)
        cache.lock(claim)
        extend = length - cached
        page = engine.page_size
        new = min(live.osl - live.out, engine.clip)
        refused = None
        last = True
        if extend + new + page >= rank.room - self.offset:
            refused = "kv_tokens"
        else:
            extend, last = self._cut(cached, extend)
            if extend <= 0:
                refused = "prefill"
            elif not cache.take_slots((claim,)):
                refused = "state_slots"
            else:
                live.done = live.held = cached
                if self._allocate(live, extend, extend if last else extend + 1) < extend:
                    refused = "kv_tokens"
        if refused is not None:
            cache.unlock(claim)
            cache.unmatch(claim)
            live.done = live.held = 0
            return refused
        self._charge(extend, new if last else 0)
        if live.first < 0 and not live.out:
            live.cached = cached
        self.flight.take(live, extend, last=last)
        if not last:
            rank.chunked = live
            rank.unstashed = True
        return None

    def _cut(self, start: int, extend: int) -> tuple[int, bool]:
        """What of the prompt fits the pass, and whether that is all of it."""
        engine = self.rank.engine
        page = engine.page_size
        paged = -(-extend // page) * page
        if engine.chunk is None:
            return (0, True) if self.flight.requests and paged >= self.tokens else (extend, True)
        if paged <= self.chunk:
            return extend, True
        cut = self.chunk // page * page
        cut = cut // engine.align * engine.align
        return (start + cut) // page * page - start, False

    def _charge(self, extend: int, new: int) -> None:
        engine = self.rank.engine
        paged = -(-extend // engine.page_size) * engine.page_size
        immediate = -(-paged // engine.page) * engine.page + engine.page
        self.offset += immediate + new
        self.now_offset += immediate
        self.tokens -= paged
        self.chunk -= paged

    def _allocate(self, live: Live, extend: int, left: int) -> int:
        """Pages for `extend` more tokens of a request, fewer if there are not as many; returns the tokens they hold.

        With its last chunk a request gets what its first decode step keeps ahead.
        """
        rank = self.rank
        engine, page = rank.engine, rank.engine.page
        end = live.done + extend
        if extend == left and engine.reserve:
            slowest = min(rate for rate, _ in engine.acceptance)
            end += max(engine.reserve - slowest // TOKEN, 0)
        need = -(-end // page) * page - live.held
        if need > 0 and not rank.cache.allocate_tokens(need):
            free = rank.room // page * page
            fits = live.held + free - live.done
            if fits <= 0 or rank.chunked is not live or not rank.cache.allocate_tokens(free):
                return 0
            live.held += free
            return min(extend - 1, fits) if extend == left else min(extend, fits)
        live.held += max(need, 0)
        return extend
