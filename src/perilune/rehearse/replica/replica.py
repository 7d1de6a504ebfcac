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
from dataclasses import dataclass
from random import Random

from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.events import STEP, WAKE, Events
from perilune.rehearse.replica.clock import first_after, lasts
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.live import Live
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.series import Timeline
from perilune.rehearse.tally import Tally
from perilune.rehearse.ticks import TOKEN

INPUT_MARGIN = 6
"""A prompt must be shorter than the context or the pool by this (`managers/tp_worker.py`, `managers/utils.py`)."""

SPANS_KEPT = 10_000

Ended = Callable[[Live, int], None]
Extras = Callable[[list[Lane], int], int]
"""What a prefill step of these lanes takes when images or loads from the host come to its own ticks."""
Fetch = Callable[[Live, Rank, int], bool]
"""Whether a request goes `away` on arrival at a rank, to be put into its queue later."""


@dataclass(slots=True)
class Stretch:
    """Steps of one kind in a row. Instants are ticks."""

    start: int
    end: int
    what: str
    requests: int
    tokens: int


class Replica:
    """One server. `submit` gives it a request; it calls `ended` when a request finished or was refused."""

    def __init__(
        self,
        engine: Engine,
        costs: Costs,
        *,
        name: str,
        index: int,
        events: Events,
        tally: Tally,
        ended: Ended,
        seed: int = 0,
        one_step: bool = False,
        all_spans: bool = False,
    ) -> None:
        self.engine = engine
        self.costs = costs
        self.name = name
        self.index = index
        self.up = True
        self.load = 0  # requests that it has and that have not ended
        self.completed = 0
        self.admitted_max = 0
        self.busy = 0  # ticks in a step
        self.line = Timeline()
        self.spans: list[Stretch] = []
        self.extras: Extras | None = None
        self.fetch: Fetch | None = None
        self.away: dict[Live, Rank] = {}  # requests that are here but not in the queue yet
        self._events = events
        self._tally = tally
        self.ranks = [self.new_rank() for _ in range(engine.ranks)]
        self.groups = [[Lane(rank) for rank in self.ranks] for _ in range(engine.lanes)]
        self.lanes = [lane for group in self.groups for lane in group]
        self._ended = ended
        self._seed = seed
        self._one_step = one_step
        self._spans_most = 1 << 60 if all_spans else SPANS_KEPT
        self._turn = 0  # of round robin over the ranks
        self._planned = False  # the next step was decided on already
        self._running = False  # a step is under way
        self._waking = False
        self._version = 0
        self._start = 0
        self._steps = 0  # decode steps of the stretch under way, 1 of a prefill
        self._first = 0  # ticks of its first step
        self._slope = 0  # and how many more the next one takes
        self._most = 1  # steps for which that is so
        self._rows = 0  # requests that hold a place during it

    # What comes from outside

    def submit(self, live: Live, now: int) -> None:
        """A request arrives."""
        self.load += 1
        live.where = self.index
        why = self._refusal(live)
        if why is not None:
            self._refuse(live, now, why)
            return
        rank = self._pick_rank(live)
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
            self._tell(now, 0, 0, sum([rank.cache.tokens - rank.room for rank in self.ranks]))
        self._version += 1
        self._running = self._planned = self._waking = False
        self._steps = 0
        for lane in self.lanes:
            lost += [entry[2] for entry in sorted(lane.batch.heap, key=lambda entry: entry[:2])]
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

    def restore(self, now: int) -> None:
        """The server is back, empty."""
        self.up = True

    # Admission at the door

    def _refusal(self, live: Live) -> str | None:
        """Why a request can never be served, after cutting its answer as the engine does."""
        engine, isl = self.engine, live.isl
        most = min(engine.context, engine.tokens) - INPUT_MARGIN
        if isl + live.osl > engine.context:
            return "context_length"
        if isl >= most:
            return "context_length" if engine.context <= engine.tokens else "kv_tokens"
        paged = -(-isl // engine.page) * engine.page
        osl = min(live.osl, min(engine.context, engine.tokens) - 2 - isl, engine.tokens - paged - engine.page - 1)
        if osl <= 0:
            return "kv_tokens"
        live.osl = osl
        return None

    def _refuse(self, live: Live, now: int, why: str) -> None:
        self.load -= 1
        self._tally.reject(live, now, why)
        self._ended(live, now)

    def _pick_rank(self, live: Live) -> Rank:
        """The attention-DP rank, as `--load-balance-method` has it (`managers/data_parallel_controller.py`)."""
        ranks = self.ranks
        if len(ranks) == 1:
            return ranks[0]
        method = self.engine.load_balance
        if method == "total_requests":
            return min(ranks, key=lambda rank: rank.rows + len(rank.queue))
        if method == "total_tokens":
            return min(ranks, key=lambda rank: (rank.prompts, rank.rows + len(rank.queue)))
        turn = self._turn
        self._turn = (turn + 1) % len(ranks)
        return ranks[turn]

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
                    steps = first_after(self._first, self._slope, now - self._start)
                    if steps < self._steps:
                        self._steps = steps
                        self._schedule()
                    return

    def _schedule(self) -> None:
        self._version += 1
        end = self._start + lasts(self._first, self._slope, self._steps)
        self._events.at(end, STEP, self._boundary, self._version)

    def _boundary(self, now: int, version: int) -> None:
        if version == self._version:
            self._land(now)
            self._go(now)

    def _go(self, now: int) -> None:
        """Start the next step, and with overlap decide on the one after it."""
        lanes, overlap = self.lanes, self.engine.overlap
        while True:
            if not self._planned or not any(lane.busy for lane in lanes):
                self._plan(now)
            self._planned = False
            for lane in lanes:
                lane.flight = lane.pending
                lane.pending = None
            if self._fly(now):
                break
            if not self._unblock(now):
                self._running = False
                for rank in self.ranks:
                    rank.ratio = self.engine.ratio
                return
        self._running = True
        self._start = now
        if overlap:
            self._plan(now)
            self._planned = True
            steps = 1 if any(lane.pending is not None for lane in lanes) else self._stretch()
        else:
            steps = self._stretch()
        self._steps = steps
        self._rows = sum([rank.rows for rank in self.ranks])
        self._schedule()

    def _plan(self, now: int) -> None:
        for lane in self.lanes:
            if lane.pending is None:
                lane.pending = lane.rank.admit(lane.batch, lane.flight, now)
        rows = sum(rank.rows for rank in self.ranks)
        if rows > self.admitted_max:
            self.admitted_max = rows

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
                self._release(rank, live, live.done, live.held)
                rank.prompts -= live.isl
                self._tally.running -= 1
                self._refuse(live, now, "kv_tokens")
                return True
        return False

    # A step

    def _fly(self, now: int) -> bool:
        """Say who does what in the step that starts, and how long it takes; False when there is nothing to do."""
        stages = self.engine.lanes
        total = slope = final = 0
        lines: list[tuple[int, int]] = []
        busy = False
        for group in self.groups:
            time, grows, prefills = self._group_time(group, now)
            if not time:
                continue
            busy = True
            total += time
            slope += grows
            if stages == 1:
                continue
            if prefills:
                if any(lane.decodes or (lane.flight is not None and lane.flight.done) for lane in group):
                    final = max(final, total + (stages - 1) * time)
            else:
                lines.append((time * stages, grows * stages))
        self._most = 1 << 60
        if lines or final:
            lines.append((total, slope))
            total, slope = max(lines)
            if final > total:
                total, slope, self._most = final, 0, 1
            for start, rise in lines:
                if rise > slope:
                    self._most = min(self._most, (total - start) // (rise - slope) + 1)
        self._first, self._slope = total, slope
        return busy

    def _group_time(self, group: list[Lane], now: int) -> tuple[int, int, bool]:
        """Ticks of one micro-batch's step, how many more the next decode step takes, and whether it prefills."""
        for lane in group:
            if lane.flight is not None:
                return self._prefill_time(group, now), 0, True
        count = most = kv = growth = 0
        for lane in group:
            batch = lane.batch
            if batch.count:
                self._make_room(lane, now)
            rows = batch.count
            lane.decodes = rows > 0
            if lane.ghosts:
                rows += lane.ghosts
                kv += lane.ghost_kv
            if rows:
                count += rows
                kv += batch.kv
                growth += batch.growth
                if rows > most:
                    most = rows
        if not count:
            return 0, 0, False
        base, per_milli = self.costs.decode(most, count)
        if len(group) > 1:
            per_milli = (per_milli + len(group) // 2) // len(group)
        return base + per_milli * kv, per_milli * growth, False

    def _prefill_time(self, group: list[Lane], now: int) -> int:
        """Ticks of a step in which some ranks prefill.

        The others decode along, or sit the step out where they speculate (`get_next_batch_to_run`: prefill and decode
        do not mix under attention DP with speculation). With `--enable-mixed-chunk` a rank decodes in its own prefill,
        when that needs no retraction.
        """
        engine = self.engine
        most = total = pairs = 0
        for lane in group:
            flight, batch = lane.flight, lane.batch
            tokens = seen = 0
            if flight is not None:
                tokens, seen = flight.tokens, flight.pairs
                lane.decodes = engine.mixed and batch.count > 0 and batch.needs(1) <= lane.rank.room
            else:
                lane.decodes = batch.count > 0 and not engine.speculates
            if lane.decodes:
                self._make_room(lane, now)
                tokens += batch.count
                seen += batch.kv // TOKEN
                lane.decodes = batch.count > 0
            total += tokens
            most = max(most, tokens)
            pairs = max(pairs, seen)
        time = self.costs.chunk(most, total, pairs)
        return time if self.extras is None else self.extras(group, time)

    def _stretch(self) -> int:
        """Decode steps until a request finishes or the KV pool is full, if nothing can be decided before."""
        if self._one_step:
            return 1
        steps = self._most
        for lane in self.lanes:
            rank = lane.rank
            if lane.flight is not None or lane.ghosts or rank.chunked is not None:
                return 1
            if rank.queue and not lane.batch.full:
                return 1
            if lane.decodes:
                batch = lane.batch
                left = batch.heap[0][0] - batch.steps
                if left < steps:
                    steps = left
        if len(self.lanes) == 1:
            lane = self.lanes[0]
            return lane.batch.fits(lane.rank.room + lane.taken, steps) if steps > 1 else 1
        return self._fits(steps)

    def _fits(self, most: int) -> int:
        """How many steps all lanes can make, at most `most`, before a rank's KV pool is full."""
        for rank in self.ranks:
            lanes = [lane for lane in self.lanes if lane.rank is rank and lane.decodes]
            room = rank.room + sum(lane.taken for lane in lanes)
            low, high = 1, most
            if sum(lane.batch.most_needed(most) for lane in lanes) <= room:
                continue
            while high > low:
                middle = (low + high + 1) // 2
                if sum(lane.batch.needs(middle) for lane in lanes) <= room:
                    low = middle
                else:
                    high = middle - 1
            most = low
        return most

    def _make_room(self, lane: Lane, now: int) -> None:
        """Allocate the next decode step's pages, retracting requests where there are none."""
        need = lane.batch.needs(1)
        if need > lane.rank.room:
            need = self._retract(lane, now)
        if need:
            lane.rank.cache.allocate_tokens(need)
        lane.taken = need

    def _retract(self, lane: Lane, now: int) -> int:
        """Send back those with the least output, the longest prompts first, until the rest fits (`retract_decode`)."""
        batch, rank, engine = lane.batch, lane.rank, self.engine
        order = sorted(
            (entry[2] for entry in batch.heap),
            key=lambda live: (batch.generated(live), -live.isl, -live.index),
        )
        need = batch.needs(1)
        for live in order[:-1]:
            self._send_back(lane, live, now)
            rank.cache.allocate_tokens(0, batch.count * engine.retract_steps)
            need = batch.needs(1)
            if need <= rank.room:
                break
        if need > rank.room:
            live = order[-1]
            self._leave(lane, live)
            rank.prompts -= live.isl
            self._tally.running -= 1
            self._refuse(live, now, "kv_tokens")
            return 0
        if not engine.ignore_eos:
            kept = [entry[2] for entry in batch.heap]
            decoded = sum(batch.generated(live) for live in kept) + engine.retract_steps * len(kept)
            rank.ratio = min(decoded * SHARE // (sum(live.osl for live in kept) + 1), SHARE)
        return need

    def _send_back(self, lane: Lane, live: Live, now: int) -> None:
        self._leave(lane, live)
        lane.rank.settle(now)
        lane.rank.queue.append(live)
        self._tally.retract(live, now)

    def _leave(self, lane: Lane, live: Live) -> None:
        """Take a running request out of its batch and give back all it holds."""
        batch = lane.batch
        held = batch.allocated(live)
        if live.join_step < batch.steps:
            live.last = batch.last
        generated = batch.generated(live)
        batch.remove({live})
        live.out = generated
        batch.full = False
        self._release(lane.rank, live, live.isl + generated - 1, held)

    def _release(self, rank: Rank, live: Live, length: int, held: int) -> None:
        page = self.engine.page
        rank.cache.free_tokens(held + -length // page * page)
        rank.cache.retract(live.claim, length)
        live.done = live.held = 0
        rank.rows -= 1

    # What comes of a step

    def _land(self, now: int) -> None:
        steps, start = self._steps, self._start
        tally = self._tally
        engine = self.engine
        prompt = output = 0
        if steps > 1:
            for lane in self.lanes:
                more = lane.batch.needs(steps) - lane.taken if lane.decodes else 0
                if more:
                    lane.rank.cache.allocate_tokens(more)
        used = sum([rank.cache.tokens - rank.room for rank in self.ranks])
        for lane in self.lanes:
            lane.ghosts = lane.ghost_kv = 0
            if lane.decodes:
                batch = lane.batch
                itl = tally.itl
                first_end = start + self._first
                if batch.settled:
                    itl.add(first_end - batch.last, batch.settled)
                if batch.joined:
                    for came, requests in batch.joined.items():
                        if requests:
                            itl.add(first_end - came, requests)
                    batch.joined.clear()
                batch.settled = batch.count
                batch.last = now
                if steps > 1:
                    itl.add_ramp(self._first + self._slope, self._slope, steps - 1, batch.count)
                output += batch.growth * steps
                if engine.ratio_decay:
                    lane.rank.ratio = max(lane.rank.ratio - engine.ratio_decay * steps, engine.ratio_min)
                batch.advance(steps)
                if batch.heap[0][0] <= batch.steps:
                    self._finish(lane, now)
            flight = lane.flight
            if flight is not None:
                lane.flight = None
                prompt += flight.tokens
                output += TOKEN * len(flight.done)
                for live in flight.done:
                    self._first_token(lane, live, now)
        self._tell(now, prompt, output // TOKEN, used)

    def _finish(self, lane: Lane, now: int) -> None:
        """Requests have their last token: what they hold comes free, and the next admission may use it.

        Under overlap with speculation the engine has them in the next step already, unless one more token was sure
        to be the last (`_reqs_finishing_inflight`).
        """
        batch, rank = lane.batch, lane.rank
        page = self.engine.page
        rides = self.engine.overlap and self.engine.speculates
        batch.full = False
        for live in batch.finished():
            length = live.isl + live.osl - 1
            surplus = batch.allocated(live) + -length // page * page
            if surplus:
                rank.cache.free_tokens(surplus)
            rank.cache.finish(live.claim, live.start, live.done, length)
            if rides:
                before = live.out * TOKEN + live.rate * (live.finish_step - 1 - live.join_step)
                if before // TOKEN + 1 < live.osl:
                    lane.ghosts += 1
                    lane.ghost_kv += length * TOKEN
            self._end(rank, live, now)

    def _first_token(self, lane: Lane, live: Live, now: int) -> None:
        """A prompt is computed to its end, and gives a token: it joins the running batch, or was all there is."""
        rank, batch = lane.rank, lane.batch
        live.out += 1
        if live.first < 0:
            self._tally.first(live, now)
        else:
            self._tally.itl.add(now - live.last)
        live.last = now
        if live.out >= live.osl:
            page = self.engine.page
            rank.cache.free_tokens(live.held + -live.done // page * page)
            rank.cache.finish(live.claim, live.start, live.done, live.done)
            batch.full = False
            self._end(rank, live, now)
            return
        rank.cache.checkpoint(live.claim, live.start, live.done)
        if not live.rate:
            live.rate = self._rate_of(live)
        rank.cache.free_tokens(live.held - batch.join(live, self.engine.clip))
        live.held = 0

    def _rate_of(self, live: Live) -> int:
        choices = self.engine.acceptance
        if len(choices) == 1:
            return choices[0][0]
        random = Random(self._seed * 1_000_003 + live.index)  # noqa: S311 - a simulation, not a secret
        return random.choices([rate for rate, _ in choices], [often for _, often in choices])[0]

    def _end(self, rank: Rank, live: Live, now: int) -> None:
        rank.rows -= 1
        rank.prompts -= live.isl
        self.load -= 1
        self.completed += 1
        self._tally.finished(live, now)
        self._ended(live, now)

    def _tell(self, now: int, prompt: int, output: int, used: int) -> None:
        """Tell the timeline and the spans of the stretch that ends."""
        start, requests = self._start, self._rows
        queued = slots = 0
        for rank in self.ranks:
            rank.settle(now)
            queued += rank.queue_area
            rank.queue_area = 0
            slots += rank.cache.slots - rank.cache.slots_free - rank.cache.slots_evictable
        self.busy += now - start
        self.line.add(start, now, requests, queued, used, slots, prompt, output)
        spans = self.spans
        what = "prefill" if prompt else "decode"
        if spans:
            newest = spans[-1]
            if newest.what == what and newest.end == start and what == "decode":
                newest.end = now
                newest.tokens += output
                newest.requests = max(newest.requests, requests)
                return
        if len(spans) < self._spans_most:
            spans.append(Stretch(start, now, what, requests, prompt or output))
