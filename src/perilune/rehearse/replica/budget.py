"""The budgets of one prefill pass, and whether a request fits them.

Source: SGLang 0.5.23 `managers/schedule_policy.py` (`PrefillAdder`), `mem_cache/prefill_budget.py`,
`mem_cache/allocation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.live import Live
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.foresight import Foresight
from perilune.rehearse.ticks import TOKEN

NEVER: Final = 1 << 60


@dataclass(slots=True)
class Entry:
    """A request's part in a pass: `extend` tokens after `start`, which are its `last` or not."""

    live: Live
    start: int
    extend: int
    last: bool


class Pass:
    """One pass over the queue: tokens to compute, and KV tokens promised. Nothing is allocated before `commit`."""

    __slots__ = ("_cache", "_chunk", "_engine", "_foresight", "_fraction", "_now", "_promised", "_tokens", "entries")

    def __init__(self, engine: Engine, cache: RadixCache, ratio: int, batch: Batch, joining: Sequence[Live]) -> None:
        """`joining` are those whose prefill is under way; they count as running. `ratio` in billionths."""
        clip = engine.clip
        expected = batch.expected(clip) if batch.count else 0
        for live in joining:
            expected += min(live.osl - live.out, clip)
        mixed = batch.count + len(joining) if engine.mixed else 0
        # The engine counts in fractions of a token: what is compared is rounded down, what is left over too.
        promised, rest = (expected, 0) if ratio == SHARE else divmod(expected * ratio, SHARE)
        self._engine = engine
        self._cache = cache
        self._promised = mixed + promised
        self._fraction = rest > 0
        self._now = mixed  # of that, what is to be allocated at once
        self._tokens = engine.max_prefill - mixed
        self._chunk = (engine.chunk if engine.chunk is not None else NEVER) - mixed
        self._foresight = Foresight(batch, joining) if cache.disabled and engine.ignore_eos else None
        self.entries: list[Entry] = []

    @property
    def spent(self) -> bool:
        """Whether no more tokens may be computed in this pass."""
        return self._tokens <= 0 or self._chunk <= 0

    @property
    def remaining(self) -> int:
        """KV tokens that nobody holds or was promised, of those that can be had by eviction."""
        cache = self._cache
        return cache.tokens_free + cache.tokens_evictable - self._promised

    def resume(self, live: Live) -> None:
        """The next chunk of the prompt in progress. It goes ahead even where the estimate says there is no room."""
        engine = self._engine
        left = live.length - live.done
        room = self.remaining - self._fraction
        most = min(self._chunk, room) if room > 0 else self._chunk
        extend = min(left, most)
        if extend < left and engine.align > 1:
            extend = extend // engine.align * engine.align or extend
        self._charge(extend, min(live.osl, engine.clip) if extend == left else 0)
        self.entries.append(Entry(live, live.done, extend, extend == left))

    def add(self, live: Live) -> str | None:
        """Take a waiting request in; returns what it has to wait for when it does not fit."""
        if self._foresight is not None:
            return self._add_foreseen(live, self._foresight)
        engine, cache, claim = self._engine, self._cache, live.claim
        length = live.length
        cached = cache.match(claim, length - 1)
        cache.lock(claim)
        extend = length - cached
        if extend + min(live.osl - live.out, engine.clip) + engine.page_size >= self.remaining:
            return self._turn_away(live, "kv_tokens")
        last, new = True, min(live.osl, engine.clip)  # what is reserved does not count what it has put out before
        page = engine.page_size
        paged = -(-extend // page) * page
        if engine.chunk is None:
            if self.entries and paged >= self._tokens:
                return self._turn_away(live, "prefill")
        elif paged > self._chunk:
            last, new = False, 0
            extend = self._chunk // page * page
            extend = extend // engine.align * engine.align
            extend = (cached + extend) // page * page - cached
            if extend <= 0:
                return self._turn_away(live, "prefill")
        self._charge(extend, new)
        self.entries.append(Entry(live, cached, extend, last))
        return None

    def _add_foreseen(self, live: Live, foresight: Foresight) -> str | None:
        """Without a radix cache the engine foresees when requests of fixed length end (`add_one_req_ignore_eos`)."""
        engine = self._engine
        extend, page = live.length, engine.page_size
        cache = self._cache
        room = cache.tokens_free + cache.tokens_evictable
        paged = -(-extend // page) * page + page
        resumed = [one.live for one in self.entries]
        if paged > min(room - self._now, self.remaining):
            return "kv_tokens"
        if not foresight.fits(live, room - self._now - paged, resumed):
            return "kv_tokens"
        last = extend <= self._chunk
        if not last:
            extend = self._chunk // engine.align * engine.align or self._chunk
        cache.match(live.claim, live.length - 1)
        cache.lock(live.claim)
        self._charge(extend, min(live.osl, engine.clip) if last else 0)
        self.entries.append(Entry(live, 0, extend, last))
        return None

    def _turn_away(self, live: Live, why: str) -> str:
        self._cache.unlock(live.claim)
        self._cache.unmatch(live.claim)
        return why

    def _charge(self, extend: int, new: int) -> None:
        engine = self._engine
        paged = -(-extend // engine.page_size) * engine.page_size
        immediate = -(-paged // engine.page) * engine.page + engine.page
        self._promised += immediate + new
        self._now += immediate
        self._tokens -= paged
        self._chunk -= paged

    def commit(self, resumed: int) -> tuple[Flight, str | None]:
        """Allocate for all that was taken in, of which the first `resumed` entries hold slots already.

        The engine would stop with an error where an allocation fails, as its estimate should prevent; here requests
        are left out, the last first, and the second value says for want of what. A prompt in progress gets what there
        is.
        """
        entries, cache = self.entries, self._cache
        short = None
        while len(entries) > resumed and not cache.take_slots([one.live.claim for one in entries[resumed:]]):
            self._turn_away(entries.pop().live, "state_slots")
            short = "state_slots"
        while entries and not self._allocate():
            short = "kv_tokens"
            if len(entries) > resumed:
                self._turn_away(entries.pop().live, short)
            else:
                self._shorten(entries[0])
                if not entries[0].extend:
                    entries.clear()
        flight = Flight()
        for one in entries:
            one.live.done = one.start
            flight.take(one.live, one.extend, last=one.last)
        return flight, short

    def _allocate(self) -> bool:
        """Pages for all entries at once. With its last chunk a request gets what its first decode step keeps ahead."""
        page, exact, evicted = self._engine.page, 0, 0
        ends = []
        for one in self.entries:
            end = one.start + one.extend + (self._ahead if one.last else 0)
            held = one.live.held or one.start
            ends.append(max(held, -(-end // page) * page))
            exact += ends[-1] - held
            evicted += one.extend + page
        if exact and not self._cache.allocate_tokens(exact, max(evicted - exact, 0)):
            return False
        for one, end in zip(self.entries, ends, strict=True):
            one.live.held = end
        return True

    @property
    def _ahead(self) -> int:
        engine = self._engine
        if not engine.reserve:
            return 0
        slowest = min(rate for rate, _ in engine.acceptance)
        return max(engine.reserve - slowest // TOKEN, 0)

    def _shorten(self, one: Entry) -> None:
        page, cache = self._engine.page, self._cache
        pages = (cache.tokens_free + cache.tokens_evictable) // page
        fits = one.live.held + pages * page - one.start
        one.extend = max(min(fits, one.extend - 1), 0)
        one.last = False
