"""The requests that one attention-DP rank decodes together, advanced many steps at once in closed form.

All of a batch grows by what each request gains a step, so sums over the requests are lines in the number of steps,
and the pages they come to need are counted on a circle: a request needs a new page whenever it passes a point that
lies fixed on it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from perilune.rehearse.live import Live
from perilune.rehearse.ticks import TOKEN


class Batch:
    """Running requests of one PP micro-batch on one rank. Lengths are thousandths of tokens unless said otherwise."""

    __slots__ = (
        "_extra",
        "_long",
        "_page",
        "coming",
        "count",
        "full",
        "growth",
        "heap",
        "joined",
        "kv",
        "last",
        "phases",
        "remaining",
        "settled",
        "steps",
    )

    def __init__(self, page: int, reserve: int) -> None:
        """`page` is the allocator's; `reserve` is what speculation keeps allocated ahead (tokens)."""
        self._page = page * TOKEN
        self._extra = reserve * TOKEN
        self.steps = 0  # decode steps so far
        self.count = 0
        self.kv = 0  # KV read by the next step
        self.growth = 0  # and how much more by the one after it
        self.remaining = 0  # tokens still to come, of the requests not in `_long`
        self.coming: list[Live] = []  # requests whose prefill is still in the pipeline
        self.full = False  # batch_is_full: admission waits until a request leaves
        self.heap: list[tuple[int, int, Live]] = []  # by finish step
        self.phases: dict[int, list[int]] = {}  # by rate: page boundaries on the circle, sorted
        self._long: list[Live] = []  # more to come than the engine's estimate counts
        self.settled = 0  # requests whose newest token came at `last`
        self.last = 0
        self.joined: dict[int, int] = {}  # requests that have not decoded since they joined, by when their token came

    def join(self, live: Live, clip: int) -> int:
        """Take in a request whose prefill is done, with `out` >= 1 tokens; returns the KV tokens it must hold."""
        rate, page = live.rate, self._page
        to_come = (live.osl - live.out) * TOKEN
        steps = self.steps
        live.join_step = steps
        live.finish_step = steps - (-to_come // rate)
        heappush(self.heap, (live.finish_step, live.index, live))
        self.count += 1
        length = live.isl + live.out
        self.kv += length * TOKEN
        self.growth += rate
        self.joined[live.last] = self.joined.get(live.last, 0) + 1
        if to_come > clip * TOKEN:
            self._long.append(live)
        else:
            self.remaining += to_come
        # KV of the newest token is written by the step to come; speculation keeps its reserve before that step.
        base = (length - 1) * TOKEN + (self._extra - rate if self._extra else 0)
        live.phase = (rate * steps - base) % page
        insort(self.phases.setdefault(rate, []), live.phase)
        return -(-base // page) * page // TOKEN

    def allocated(self, live: Live, ahead: int = 0) -> int:
        """KV tokens that a running request holds now, or when it has its pages for so many steps more."""
        page, rate = self._page, live.rate
        base = (live.isl + live.out - 1) * TOKEN + (self._extra - rate if self._extra else 0)
        return -(-(base + rate * (self.steps + ahead - live.join_step)) // page) * page // TOKEN

    def needs(self, steps: int) -> int:
        """KV tokens to be allocated for so many steps more."""
        page = self._page
        pages = 0
        for rate, phases in self.phases.items():
            around, rest = divmod(rate * steps, page)
            low = rate * self.steps % page
            high = low + rest
            if around:
                pages += around * len(phases)
            if rest:
                if high <= page:
                    pages += bisect_left(phases, high) - bisect_left(phases, low)
                else:
                    pages += len(phases) - bisect_left(phases, low) + bisect_left(phases, high - page)
        return pages * page // TOKEN

    def most_needed(self, steps: int) -> int:
        """KV tokens that are surely enough for so many steps more."""
        return self.growth * steps // TOKEN + self.count * self._page // TOKEN

    def advance(self, steps: int) -> None:
        """So many steps were done."""
        self.steps += steps
        more = self.growth * steps
        self.kv += more
        if self._long:
            more = (self.growth - sum(live.rate for live in self._long)) * steps
        self.remaining -= more

    def merged(self, *, alone: bool, cut: bool) -> None:
        """A prefill comes into the running batch: admission is tried again if it was `alone` or was `cut` short.

        The engine takes the prefill's own flag in the one case, and sees the batch shrink in the other
        (`get_next_batch_to_run`).
        """
        if alone or cut:
            self.full = False

    def expected(self, clip: int) -> int:
        """Tokens still to come of all running requests, each clipped as the engine's estimate clips it."""
        total = self.remaining
        if self._long:
            kept = []
            for live in self._long:
                left = self._left(live)
                if left > clip * TOKEN:
                    total += clip * TOKEN
                    kept.append(live)
                else:
                    total += left
                    self.remaining += left
            self._long = kept
        return -(-total // TOKEN)

    def _left(self, live: Live) -> int:
        return (live.osl - live.out) * TOKEN - live.rate * (self.steps - live.join_step)

    def generated(self, live: Live) -> int:
        """Tokens that a running request has generated so far."""
        return min(live.out + live.rate * (self.steps - live.join_step) // TOKEN, live.osl)

    def finished(self) -> list[Live]:
        """Take out the requests that have all their tokens, in order of finish step and arrival."""
        heap, steps = self.heap, self.steps
        done = []
        while heap and heap[0][0] <= steps:
            live = heappop(heap)[2]
            self._drop(live)
            done.append(live)
        self.settled -= len(done)
        return done

    def ending(self) -> list[Live]:
        """The requests that the next step brings to their end."""
        following = self.steps + 1
        if not self.heap or self.heap[0][0] > following:
            return []
        return [live for step, _, live in self.heap if step <= following]

    def surely_ends(self, live: Live) -> bool:
        """Whether a request that its last step brought to its end, or the next will, needed one token at most for that.

        That is when the engine knows before the step is over.
        """
        before = live.out * TOKEN + live.rate * (live.finish_step - 1 - live.join_step)
        return before // TOKEN + 1 >= live.osl

    def remove(self, gone: set[Live]) -> None:
        """Take out requests that are retracted or lost."""
        self.heap = [entry for entry in self.heap if entry[2] not in gone]
        heapify(self.heap)
        for live in sorted(gone, key=lambda one: one.index):
            self._drop(live)
            if live.join_step < self.steps:
                self.settled -= 1
            else:
                self.joined[live.last] -= 1

    def _drop(self, live: Live) -> None:
        rate = live.rate
        gained = rate * (self.steps - live.join_step)
        self.count -= 1
        self.kv -= (live.isl + live.out) * TOKEN + gained
        self.growth -= rate
        if self._long and live in self._long:
            self._long.remove(live)
        else:
            self.remaining -= (live.osl - live.out) * TOKEN - gained
        phases = self.phases[rate]
        del phases[bisect_left(phases, live.phase)]
        if not phases:
            del self.phases[rate]
