"""One forward of a server: who does what in it, and how long it and the decode steps after it take.

Prefill and decode do not share a step, but for ranks under attention DP, which decode beside a prefill of another
rank when they do not speculate, and for `--enable-mixed-chunk`. Source: SGLang 0.5.23 `managers/scheduler.py`
(`get_next_batch_to_run`), `managers/scheduler_components/dp_attn.py`, `managers/scheduler_pp_mixin.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import Engine
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.memory import Memory
from perilune.rehearse.ticks import TOKEN

Extras = Callable[[list[Lane], int], int]
"""What a prefill step of these lanes takes when images or loads from the host come to its own ticks."""

FOREVER: Final = 1 << 60


class Forward:
    """The step under way: `first` ticks, and each decode step after it `slope` more, for at most `most` steps."""

    __slots__ = ("_costs", "_engine", "_memory", "extras", "first", "most", "slope")

    def __init__(self, engine: Engine, costs: Costs, memory: Memory) -> None:
        self._engine = engine
        self._costs = costs
        self._memory = memory
        self.extras: Extras | None = None
        self.first = 0
        self.slope = 0
        self.most = 1

    def start(self, groups: list[list[Lane]], now: int) -> bool:
        """Say who does what in the step that starts, and how long it takes; False when there is nothing to do."""
        stages = self._engine.lanes
        total = slope = 0
        lines: list[tuple[int, int]] = []
        flying: list[tuple[Flight, int]] = []
        busy = False
        for group in groups:
            time, grows, prefills = self._group_time(group, now)
            if not time:
                continue
            busy = True
            total += time
            slope += grows
            if stages == 1:
                continue
            if not prefills or any(lane.decodes for lane in group):
                lines.append((time * stages, grows * stages))
            flying += [(lane.flight, total + (stages - 1) * time) for lane in group if lane.flight is not None]
        self.most = FOREVER
        if lines:
            lines.append((total, slope))
            total, slope = max(lines)
            for start, rise in lines:
                if rise > slope:
                    self.most = min(self.most, (total - start) // (rise - slope) + 1)
        for flight, through in flying:
            flight.late = max(through - total, 0)
        self.first, self.slope = total, slope
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
                self._memory.make_room(lane, now)
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
        base, per_milli = self._costs.decode(most, count)
        if len(group) > 1:
            per_milli = (per_milli + len(group) // 2) // len(group)
        return base + per_milli * kv, per_milli * growth, False

    def _prefill_time(self, group: list[Lane], now: int) -> int:
        """Ticks of a step in which some ranks prefill.

        The others decode along, or sit the step out where they speculate (`get_next_batch_to_run`: prefill and decode
        do not mix under attention DP with speculation). With `--enable-mixed-chunk` a rank decodes in its own prefill,
        when that needs no retraction.
        """
        engine = self._engine
        most = total = pairs = 0
        for lane in group:
            flight, batch = lane.flight, lane.batch
            tokens = seen = 0
            if flight is not None:
                tokens, seen = flight.tokens, flight.pairs
                lane.decodes = engine.mixed and batch.count > 0 and batch.needs(1) <= lane.rank.room
                flight.mixed = lane.decodes
            else:
                lane.decodes = batch.count > 0 and not engine.speculates
            if lane.decodes:
                self._memory.make_room(lane, now)
                tokens += batch.count
                seen += batch.kv // TOKEN
                lane.decodes = batch.count > 0
            total += tokens
            most = max(most, tokens)
            pairs = max(pairs, seen)
        time = self._costs.chunk(most, total, pairs)
        return time if self.extras is None else self.extras(group, time)
