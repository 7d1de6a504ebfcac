"""A decode server of a PD pair: it gives room to requests before prefill starts, and decodes what has come.

A request whose transfer is over joins the running batch at the next decision, as far as `max_running_requests` allows;
only then does its first token, which prefill computed, go out. A retracted request keeps its KV in host memory and
comes back before any new one is given room. Source: SGLang 0.5.23 disaggregation/decode.py
(`get_new_prebuilt_batch`, `process_decode_queue`, `resume_retracted_reqs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import Engine
from perilune.rehearse.events import WAKE
from perilune.rehearse.fleet.room import DecodeRank, DecodeSettings, Place
from perilune.rehearse.live import Live
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.forward import Forward
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.memory import Memory
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.replica.results import Results
from perilune.rehearse.run import Ended, Run

Granted = Callable[[Live, int], None]
Refuse = Callable[[Live, int, str], None]

NO_BACKUP: Final = "retracted"


class DecodeMemory(Memory):
    """Retraction on a decode server: the KV goes to host memory, or the request is refused."""

    __slots__ = ("backup",)

    backup: bool

    def _send_back(self, rank: Rank, live: Live, now: int) -> None:
        assert isinstance(rank, DecodeRank)  # noqa: S101 - a decode server has no other
        rank.seated -= 1
        if self.backup:
            rank.retracted.append((live, now))
            self._tally.retract(live, now)
        else:
            rank.prompts -= live.isl
            self._tally.running -= 1
            self._refuse(live, now, NO_BACKUP)


class DecodeForward(Forward):
    """A step of a decode server: whoever was let in joins first, which takes no time."""

    __slots__ = ("results",)

    results: DecodeResults

    def start(self, groups: list[list[Lane]], now: int) -> bool:
        """Let in, then as any server."""
        for group in groups:
            for lane in group:
                if lane.flight is not None:
                    for live in lane.flight.done:
                        self.results.join(lane, live)
                    lane.flight = None
        return super().start(groups, now)


class DecodeResults(Results):
    """Lands decode steps."""

    __slots__ = ()

    def join(self, lane: Lane, live: Live) -> None:
        """A request whose KV is here becomes part of the running batch."""
        if not live.rate:
            live.rate = self._rate_of(live)
        lane.rank.cache.free_tokens(live.held - lane.batch.join(live, self._engine.clip))
        live.held = 0


class DecodeReplica(Replica):
    """One decode server. `granted` is told of a request that was given room."""

    memory_of = DecodeMemory
    forward_of = DecodeForward
    results_of = DecodeResults
    _memory: DecodeMemory
    forward: DecodeForward
    _results: DecodeResults

    def __init__(
        self,
        engine: Engine,
        costs: Costs,
        settings: DecodeSettings,
        *,
        name: str,
        index: int,
        run: Run,
        ended: Ended,
        granted: Granted,
    ) -> None:
        self._settings = settings
        super().__init__(
            engine,
            costs,
            name=name,
            index=index,
            run=run,
            ended=ended,
        )
        self._granted = granted
        self._memory.backup = settings.backup
        self.forward.results = self._results

    def new_rank(self) -> DecodeRank:
        """A rank that sets room apart."""
        return DecodeRank(self.engine, self._tally, self._settings)

    def land(self, live: Live, now: int) -> None:
        """The KV and the state of a request have come."""
        for rank in self._ranks():
            place = rank.arriving.pop(live, None)
            if place is not None:
                place.since = now
                place.seat = rank.seated + len(rank.landed) < self.engine.requests
                rank.landed.append((live, place))
                self._reconsider(rank, now)
                return

    def cancel(self, live: Live, now: int) -> None:
        """The prefill server of a request is lost, or refuses it: whatever was set apart comes free."""
        for rank in self._ranks():
            place = rank.arriving.pop(live, None)
            if place is not None:
                rank.free(place)
            elif live in rank.queue:
                rank.settle(now)
                rank.queue.remove(live)
            else:
                continue
            rank.prompts -= live.isl
            self.load -= 1
            self._reconsider(rank, now)
            return

    def fail(self, now: int) -> list[Live]:
        """The server is lost, and all that has room on it."""
        between: list[Live] = []
        for rank in self._ranks():
            between += rank.arriving
            between += [live for live, _ in rank.landed]
            between += [live for live, _ in rank.retracted]
        return super().fail(now) + between

    def _refusal(self, live: Live) -> str | None:
        why = super()._refusal(live)
        if why is None and self._ranks()[0].too_large(live):
            return "kv_tokens"
        return why

    def _ranks(self) -> list[DecodeRank]:
        return [rank for rank in self.ranks if isinstance(rank, DecodeRank)]

    def _reconsider(self, rank: Rank, now: int) -> None:
        """Something changed that may let a request in: look at the next boundary."""
        self._block(rank, blocked=False)
        self.look(rank, now)

    def _block(self, rank: Rank, *, blocked: bool) -> None:
        """Whether the queue of a rank need not be looked at before a request leaves."""
        for lane in self.lanes:
            if lane.rank is rank:
                lane.batch.full = blocked

    def _blocked(self, rank: Rank) -> bool:
        """Whether it is known that nothing is let in before one of those that run leaves."""
        lanes = [lane for lane in self.lanes if lane.rank is rank]
        return any(lane.batch.count for lane in lanes) and all(lane.batch.full for lane in lanes)

    def _plan(self, now: int) -> bool:
        for rank in self._ranks():
            if rank.retracted:
                for live, place in rank.resume(self._running_on(rank), now):
                    loaded = self.costs.host_load(live.isl + live.out - 1, storage=False)
                    self._events.at(now + loaded, WAKE, self._back, (live, place))
            rank.looked = len(rank.retracted)
            if not rank.queue:
                self._block(rank, blocked=False)
            elif not rank.retracted and not self._blocked(rank):
                self._grant(rank, now)
        for lane in self.lanes:
            if lane.pending is None and isinstance(lane.rank, DecodeRank) and lane.rank.landed:
                lane.pending = self._let_in(lane, lane.rank, now)
        running = sum(self._running_on(rank) for rank in self.ranks)
        if running > self.admitted_max:
            self.admitted_max = running
        return any(lane.pending is not None for lane in self.lanes)

    def _schedule(self) -> None:
        self._rows = sum([lane.batch.count for lane in self.lanes])  # room set apart is no running request
        super()._schedule()

    def _end(self, rank: Rank, live: Live, now: int) -> None:
        assert isinstance(rank, DecodeRank)  # noqa: S101 - a decode server has no other
        rank.seated -= 1
        super()._end(rank, live, now)

    def _grant(self, rank: DecodeRank, now: int) -> None:
        batches = [lane.batch for lane in self.lanes if lane.rank is rank]
        granted, blocked = rank.grant(batches, self._running_on(rank), now)
        self._block(rank, blocked=blocked)
        for live in granted:
            self._granted(live, now)

    def _running_on(self, rank: Rank) -> int:
        running = 0
        for lane in self.lanes:
            if lane.rank is rank:
                running += lane.batch.count
                if lane.pending is not None:
                    running += len(lane.pending.done)
        return running

    def _let_in(self, lane: Lane, rank: DecodeRank, now: int) -> Flight | None:
        """Requests that have come, as far as they may run."""
        engine, tally = self.engine, self._tally
        seats = min(engine.micro_batch - lane.batch.count, engine.requests - self._running_on(rank))
        flight = Flight()
        landed = rank.landed
        while landed and len(flight.done) < seats:
            live, place = landed.popleft()
            cause = "transfer" if place.seat else engine.limit_cause
            if now > place.since:
                tally.waits[cause] = tally.waits.get(cause, 0) + now - place.since
            live.claim, live.held = place.claim, place.held
            live.start, live.done, live.where = 0, live.isl, self.index
            tally.admitted(live, now)
            rank.seated += 1
            if live.first < 0:
                live.out = 1
                tally.first(live, now)
                live.last = now
            if live.out < live.osl:
                flight.done.append(live)
                continue
            page = engine.page
            rank.cache.free_tokens(live.held + -live.isl // page * page)
            rank.cache.finish(live.claim, 0, live.isl, live.isl)
            self._block(rank, blocked=False)
            self._end(rank, live, now)
        return flight if flight.done else None

    def _back(self, now: int, came: tuple[Live, Place]) -> None:
        live, place = came
        if any(rank.arriving.get(live) is place for rank in self._ranks()):
            self.land(live, now)

    def _stretch(self) -> int:
        if any(len(rank.retracted) > rank.looked for rank in self._ranks()):
            return 1  # room was not looked for since one was retracted
        return super()._stretch()

    def _unblock(self, now: int) -> bool:
        """Nothing runs: let in what has come, or refuse what not even an empty server has room for."""
        for rank in self._ranks():
            if rank.landed:
                return True
            if rank.arriving:
                continue
            if rank.retracted:
                live, _ = rank.retracted.popleft()
                rank.prompts -= live.isl
                self._refuse(live, now, "kv_tokens")
                return True
            if rank.queue:
                rank.settle(now)
                live = rank.queue.popleft()
                rank.prompts -= live.isl
                self._refuse(live, now, rank.cause)
                return True
        return False
