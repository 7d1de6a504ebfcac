"""The budgets of one prefill pass, and whether a request fits them.

Source: SGLang 0.5.23 `managers/schedule_policy.py` (`PrefillAdder`), `mem_cache/prefill_budget.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perilune.rehearse.engine import SHARE
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.live import Live
from perilune.rehearse.ticks import TOKEN

if TYPE_CHECKING:
    from perilune.rehearse.replica.rank import Rank


class Pass:
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
