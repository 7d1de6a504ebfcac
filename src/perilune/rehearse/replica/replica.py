"""One server over time: steps, what is decided at their boundaries, and what comes of them.

A step is one forward of the whole server, or of every PP micro-batch in turn. With the overlap scheduler the batch of
a step is decided when the step before it starts, from what was known then: a request that arrives during a step joins
the batch after the next one, and what a finished request held is free for the step after next. Without overlap, and
under pipeline parallelism, the decision comes when the step before is over.
Source: SGLang 0.5.23 `managers/scheduler.py` (`event_loop_overlap`, `get_next_batch_to_run`, `update_running_batch`),
`managers/scheduler_pp_mixin.py` (`event_loop_pp`), `managers/schedule_batch.py` (`retract_decode`),
`managers/scheduler_components/dp_attn.py`.

Pipeline parallelism is told in cycles in which every micro-batch makes one step. A cycle lasts as long as the stages
need for all of them, or as the slowest needs to pass all stages; the first token of a prompt comes when its last
chunk has passed them.
"""

from __future__ import annotations

from collections.abc import Callable

from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import Engine
from perilune.rehearse.events import ARRIVAL, STEP, WAKE
from perilune.rehearse.live import Live
from perilune.rehearse.replica.chronicle import Chronicle
from perilune.rehearse.replica.clock import first_after, lasts
from perilune.rehearse.replica.door import Balance, refusal
from perilune.rehearse.replica.forward import Forward
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.memory import Memory
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.replica.results import Results
from perilune.rehearse.replica.stretch import stretch
from perilune.rehearse.run import Ended, Run
from perilune.rehearse.ticks import TOKEN

Fetch = Callable[[Live, Rank, int], bool]
"""Whether a request goes `away` on arrival at a rank, to be put into its queue later."""


class Replica:
    """One server. `submit` gives it a request; it calls `ended` when a request finished or was refused."""

    memory_of = Memory
    forward_of = Forward
    results_of = Results

    def __init__(
        self,
        engine: Engine,
        costs: Costs,
        *,
        name: str,
        index: int,
        run: Run,
        ended: Ended,
    ) -> None:
        self.engine = engine
        self.costs = costs
        self.name = name
        self.index = index
        self.up = True
        self.load = 0  # requests that it has and that have not ended
        self.completed = 0
        self.admitted_max = 0
        self.chronicle = Chronicle(everything=run.all_spans)
        self.fetch: Fetch | None = None
        self.away: dict[Live, Rank] = {}  # requests that are here but not in the queue yet
        self._events = run.events
        self._tally = run.tally
        self.ranks = [self.new_rank() for _ in range(engine.ranks)]
        self.groups = [[Lane(rank) for rank in self.ranks] for _ in range(engine.lanes)]
        self.lanes = [lane for group in self.groups for lane in group]
        self._ended = ended
        self._one_step = run.one_step
        self._memory = self.memory_of(engine, run.tally, self._refuse)
        self.forward = self.forward_of(engine, costs, self._memory)
        self._results = self.results_of(engine, self._memory, run.tally, run.seed, self._end, self._come_later)
        self._balance = Balance(engine.load_balance)
        self._planned = False  # the next step was decided on already
        self._running = False  # a step is under way
        self._waking = False
        self._version = 0
        self._lives = 0  # times it has failed
        self._start = 0
        self._steps = 0  # decode steps of the stretch under way, 1 of a prefill
        self._rows = 0  # requests that hold a place during it
        self._used = 0  # KV tokens that they hold at its start
        self._slots = 0  # and state slots

    # What comes from outside

    def submit(self, live: Live, now: int) -> None:
        """A request arrives."""
        self.load += 1
        live.where = self.index
        why = self._refusal(live)
        if why is not None:
            self._refuse(live, now, why)
            return
        rank = self._balance.pick(self.ranks)
        if self.engine.max_queued is not None and len(rank.queue) >= self.engine.max_queued:
            self._refuse(live, now, "queue_full")
            return
        rank.prompts += live.isl
        if self.fetch is None or not self.fetch(live, rank, now):
            rank.settle(now)
            rank.queue.append(live)
            self.look(rank, now)

    def look(self, rank: Rank, now: int) -> None:
        """Something has come to a rank: have its queue looked at as soon as the engine would."""
        if not self._running:
            self._wake_at(now)
        elif self._steps > 1:
            self._interrupt(rank, now)

    def new_rank(self) -> Rank:
        """An attention-DP rank with nothing in it."""
        return Rank(self.engine, self._tally)

    def fail(self, now: int) -> list[Live]:
        """The server is lost with all it holds; returns its requests, which `lose` what they had to start over."""
        lost: list[Live] = []
        if self._running:
            self._break_off(now)
        self._version += 1
        self._lives += 1
        self._running = self._planned = self._waking = False
        self._steps = 0
        for lane in self.lanes:
            lost += [entry[2] for entry in sorted(lane.batch.heap, key=lambda entry: entry[:2])]
            lost += lane.batch.coming
            for flight in (lane.flight, lane.pending):
                lost += flight.done if flight is not None else []
        for rank in self.ranks:
            rank.settle(now)
            if rank.chunked is not None:
                lost.append(rank.chunked)
            lost += rank.queue
        waiting = {live for rank in self.ranks for live in rank.queue}
        for live in lost:
            self._tally.running -= live not in waiting
        lost += self.away
        self.away = {}
        self.ranks = [self.new_rank() for _ in self.ranks]
        for rank in self.ranks:
            rank.settle(now)
        self.groups = [[Lane(rank) for rank in self.ranks] for _ in self.groups]
        self.lanes = [lane for group in self.groups for lane in group]
        self.load = 0
        self.up = False
        return lost

    def _break_off(self, now: int) -> None:
        """The stretch under way ends in the middle of a step: those before it were made."""
        forward, start, output = self.forward, self._start, 0
        made = min(first_after(forward.first, forward.slope, now - start), self._steps) - 1
        if made > 0:
            boundary = start + lasts(forward.first, forward.slope, made)
            output = self._results.break_off(self.lanes, forward, start, made, boundary)
        self._tell(now, 0, output)

    def restore(self, now: int) -> None:
        """The server is back, empty."""
        self.up = True

    def _refusal(self, live: Live) -> str | None:
        return refusal(self.engine, live, self._tally)

    def _refuse(self, live: Live, now: int, why: str) -> None:
        self.load -= 1
        self._tally.reject(live, now, why)
        self._ended(live, now)

    # Boundaries

    def _wake_at(self, now: int) -> None:
        if not self._waking:
            self._waking = True
            self._events.at(now, WAKE, self._wake)

    def _wake(self, now: int, _: object) -> None:
        if self._waking:
            self._waking = False
            if not self._running:
                self._start = now
                self._go(now)

    def _interrupt(self, rank: Rank, now: int) -> None:
        """A request came while a stretch is under way: end the stretch where it can be looked at."""
        for group in self.groups:
            for lane in group:
                if lane.rank is rank and not lane.batch.full:
                    self._cut_stretch(now)
                    return

    def _cut_stretch(self, now: int) -> None:
        steps = first_after(self.forward.first, self.forward.slope, now - self._start)
        if steps < self._steps:
            self._steps = steps
            self._schedule()

    def _schedule(self) -> None:
        self._version += 1
        end = self._start + lasts(self.forward.first, self.forward.slope, self._steps)
        self._events.at(end, STEP, self._boundary, self._version)

    def _boundary(self, now: int, version: int) -> None:
        if version == self._version:
            prompt, output = self._results.land(self.lanes, self.forward, self._start, self._steps, now)
            self._tell(now, prompt, output)
            self._go(now)

    def _come_later(self, due: int, lane: Lane, done: list[Live]) -> None:
        self._events.at(due, ARRIVAL, self._come, (self._lives, lane, done))

    def _come(self, now: int, told: tuple[int, Lane, list[Live]]) -> None:
        """Results have passed the last pipeline stage; where their batch decodes they join at the next boundary."""
        lives, lane, done = told
        if lives != self._lives:
            return
        lane.arrived += done
        if not (self._running and lane.decodes):
            self._results.arrive(lane, now)
            self._results.tell_first(now, 0)
        if not self._running:
            self._wake_at(now)
        elif self._steps > 1:
            self._cut_stretch(now)

    def _go(self, now: int) -> None:
        """Start the next step, and with overlap decide on the one after it."""
        lanes, overlap = self.lanes, self.engine.overlap
        while True:
            for lane in lanes if self._planned else ():
                if lane.pending is not None or lane.batch.count or lane.ghosts:
                    break
            else:
                self._plan(now)
                self._decay()
            self._planned = False
            for lane in lanes:
                lane.flight = lane.pending
                lane.pending = None
            if self._comes_out():
                self._results.tell_first(now, 0)
                self._running = False
                return
            if self.forward.start(self.groups, now):
                break
            self._results.tell_first(now, 0)
            if not self._unblock(now):
                self._running = False
                for rank in self.ranks:
                    rank.ratio = self.engine.ratio
                return
        behind = self.engine.late and any(lane.flight is not None for lane in lanes)
        self._results.tell_first(now, self.forward.first * self.engine.late // TOKEN if behind else 0)
        self._running = True
        self._start = now
        alone = False  # whether what comes after this step is to be decided when it is over
        if overlap:
            alone = self._plan(now)
            self._planned = self._look_ahead(now) or alone
            alone = alone or not self._planned
        self._steps = 1 if alone else self._stretch()
        rows = used = slots = 0
        for rank in self.ranks:
            cache = rank.cache
            rows += rank.rows
            used += cache.tokens - cache.tokens_free - cache.tokens_evictable
            slots += cache.slots - cache.slots_free - cache.slots_evictable
        self._rows, self._used, self._slots = rows, used, slots
        self._schedule()

    def _comes_out(self) -> bool:
        """Whether no more prompts go into the pipeline, but some are in it: then they decode together with the rest."""
        if self.engine.lanes == 1 or any(lane.flight is not None for lane in self.lanes):
            return False
        return any(lane.batch.coming for lane in self.lanes)

    def _plan(self, now: int) -> bool:
        """Decide on the next step; whether any lane prefills in it."""
        prefills = False
        for lane in self.lanes:
            lane.pending = lane.rank.admit(lane.batch, lane.flight, now)
            if lane.pending is not None:
                prefills = True
        if prefills:
            rows = sum([rank.rows for rank in self.ranks])
            if rows > self.admitted_max:
                self.admitted_max = rows
        return prefills

    def _look_ahead(self, now: int) -> bool:
        """Whether the decode step after the one that starts can be decided on."""
        decided = True
        for lane in self.lanes:
            if lane.pending is None:
                found = self._memory.look_ahead(lane, now)
                decided = decided and found
        return decided

    def _decay(self) -> None:
        """With overlap the step that starts was decided on just now."""
        if self.engine.overlap:
            for lane in self.lanes:
                if lane.pending is None and lane.batch.count:
                    lane.rank.decay(1)

    def _unblock(self, now: int) -> bool:
        """Nothing runs: refuse a request at the head of a queue that not even an empty server takes."""
        for rank in self.ranks:
            if rank.queue:
                rank.settle(now)
                live = rank.queue.popleft()
                rank.prompts -= live.isl
                self._refuse(live, now, rank.cause)
                return True
            if rank.chunked is not None:
                live, rank.chunked = rank.chunked, None
                self._memory.release(rank, live, live.done, live.held)
                rank.prompts -= live.isl
                self._tally.running -= 1
                self._refuse(live, now, "kv_tokens")
                return True
        return False

    def _stretch(self) -> int:
        """Decode steps until there is something to decide."""
        if self._one_step:
            return 1
        return stretch(self.lanes, self.forward.most, ahead=1 if self.engine.overlap else 0)

    # What comes of a step

    def _end(self, rank: Rank, live: Live, now: int) -> None:
        rank.rows -= 1
        rank.prompts -= live.isl
        self.load -= 1
        self.completed += 1
        self._tally.finished(live, now)
        self._ended(live, now)

    def _tell(self, now: int, prompt: int, output: int) -> None:
        queued = 0
        for rank in self.ranks:
            rank.settle(now)
            queued += rank.queue_area
            rank.queue_area = 0
        self.chronicle.step(
            self._start,
            now,
            requests=self._rows,
            queued=queued,
            used=self._used + output // 2,
            slots=self._slots,
            prompt=prompt,
            output=output,
        )
