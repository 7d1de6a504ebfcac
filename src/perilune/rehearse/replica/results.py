"""What comes of a step when it is over: tokens, ends, and what they free."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from perilune.rehearse.engine import Engine
from perilune.rehearse.live import Live
from perilune.rehearse.replica.forward import Forward
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.memory import Memory
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.tally import Tally
from perilune.rehearse.ticks import TOKEN

End = Callable[[Rank, Live, int], None]
Later = Callable[[int, Lane, list[Live]], None]
"""Has requests `arrive` at a later instant."""


class Results:
    """Lands steps; `end` is told of every request that has its last token."""

    __slots__ = ("_end", "_engine", "_fresh", "_later", "_memory", "_seed", "_tally")

    def __init__(self, engine: Engine, memory: Memory, tally: Tally, seed: int, end: End, later: Later) -> None:
        self._engine = engine
        self._memory = memory
        self._tally = tally
        self._seed = seed
        self._end = end
        self._later = later
        self._fresh: list[tuple[Lane, Live]] = []  # whose first token is computed, and not told

    def land(self, lanes: list[Lane], forward: Forward, start: int, steps: int, now: int) -> tuple[int, int]:
        """The stretch of `steps` from `start` to `now` is over; returns prompt tokens computed and tokens put out."""
        if steps > 1:
            for lane in lanes:
                if lane.decodes:
                    self._memory.take(lane, lane.batch.needs(steps) - lane.taken, steps)
        prompt = output = 0
        for lane in lanes:
            lane.ghosts = lane.ghost_kv = 0
            output += self._decode(lane, forward, start, steps, now)
            flight = lane.flight
            if flight is not None:
                lane.flight = None
                prompt += flight.tokens
                output += TOKEN * len(flight.done)
                before = lane.batch.count
                if flight.late:
                    lane.batch.coming += flight.done
                    self._later(now + flight.late, lane, flight.done)
                else:
                    for live in flight.done:
                        self._first_token(lane, live, now)
                if not self._engine.overlap:
                    lane.batch.merged(alone=flight.mixed or not before, cut=flight.cut is not None)
            if lane.arrived:
                self.arrive(lane, now)
        return prompt, output // TOKEN

    def arrive(self, lane: Lane, now: int) -> None:
        """Prompts whose results have come through the pipeline give their first tokens."""
        coming = lane.batch.coming
        arrived, lane.arrived = lane.arrived, []
        for live in arrived:
            if live in coming:
                coming.remove(live)
                self._first_token(lane, live, now)

    def break_off(self, lanes: list[Lane], forward: Forward, start: int, steps: int, now: int) -> int:
        """The server is lost `steps` into a stretch, of which the last was over `now`; returns tokens put out."""
        return sum([self._decode(lane, forward, start, steps, now) for lane in lanes]) // TOKEN

    def _decode(self, lane: Lane, forward: Forward, start: int, steps: int, now: int) -> int:
        """A batch made its steps, after each of which every request has a token more, or some with speculation.

        Returns thousandths of the tokens put out.
        """
        if not lane.decodes:
            return 0
        batch, itl, engine = lane.batch, self._tally.itl, self._engine
        output = batch.growth * steps
        first_end = start + forward.first
        if batch.settled:
            itl.add(first_end - batch.last, batch.settled)
        if batch.joined:
            for came, requests in batch.joined.items():
                if requests:
                    itl.add(first_end - came, requests)
            batch.joined.clear()
        if steps > 1:
            itl.add_ramp(forward.first + forward.slope, forward.slope, steps - 1, batch.count)
        batch.settled = batch.count
        batch.last = now
        if lane.flight is None:
            lane.rank.decay(steps - 1 if engine.overlap else steps)
        batch.advance(steps)
        if batch.heap and batch.heap[0][0] <= batch.steps:
            self._finish(lane, now)
        return output

    def _finish(self, lane: Lane, now: int) -> None:
        """Requests have their last token: what they hold comes free, and the next admission may use it.

        Under overlap with speculation the engine has them in the next step already, unless one more token was sure
        to be the last (`_reqs_finishing_inflight`).
        """
        batch, rank = lane.batch, lane.rank
        page = self._engine.page
        rides = self._engine.overlap and self._engine.speculates
        batch.full = False
        for live in batch.finished():
            length = live.isl + live.osl - 1
            surplus = batch.allocated(live) + -length // page * page
            if surplus:
                rank.cache.free_tokens(surplus)
            rank.cache.finish(live.claim, live.start, live.done, length)
            if rides and not batch.surely_ends(live):
                lane.ghosts += 1
                lane.ghost_kv += length * TOKEN
            self._end(rank, live, now)

    def _first_token(self, lane: Lane, live: Live, now: int) -> None:
        """A prompt is computed to its end, and gives a token: it joins the running batch, or was all there is."""
        rank, batch = lane.rank, lane.batch
        live.out += 1
        again = live.first >= 0
        if again:
            self._tally.itl.add(now - live.last)
        live.last = now
        if live.out >= live.osl:
            if not again:
                self._tally.first(live, now)
            page = self._engine.page
            rank.cache.free_tokens(live.held + -live.done // page * page)
            rank.cache.finish(live.claim, live.start, live.done, live.done)
            batch.full = False
            self._end(rank, live, now)
            return
        rank.cache.checkpoint(live.claim, live.start, live.done)
        if not live.rate:
            live.rate = self._rate_of(live)
        rank.cache.free_tokens(live.held - batch.join(live, self._engine.clip))
        live.held = 0
        if not again:
            self._fresh.append((lane, live))

    def tell_first(self, now: int, late: int) -> None:
        """Tell the first tokens of the prefill that ended `now`, seen `late` ticks after it."""
        seen = now + late
        for lane, live in self._fresh:
            self._tally.first(live, seen)
            joined = lane.batch.joined
            if late and joined.get(now):
                live.last = seen
                joined[now] -= 1
                joined[seen] = joined.get(seen, 0) + 1
        self._fresh.clear()

    def _rate_of(self, live: Live) -> int:
        choices = self._engine.acceptance
        if len(choices) == 1:
            return choices[0][0]
        random = Random(self._seed * 1_000_003 + live.index)  # noqa: S311 - a simulation, not a secret
        return random.choices([rate for rate, _ in choices], [often for _, often in choices])[0]
