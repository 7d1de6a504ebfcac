"""A decode server of a PD pair: it sets pages and slots apart before prefill starts, and decodes what has come.

Rules of SGLang 0.5.23 (disaggregation/decode.py): requests are given room in order of arrival. Rows are
`max_running_requests` and `--disaggregation-decode-extra-slots` more, for those that run and those under way. The KV
pool must keep `--num-reserved-decode-tokens` for every request that has room, or what the longest running request may
still need if all others were retracted, whichever is more. A request whose transfer is over joins the running batch
at the next decision, as far as `max_running_requests` allows; only then does its first token, which prefill computed,
go out. A retracted request keeps its KV in host memory and comes back before any new one is given room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from perilune.errors import Refused
from perilune.plan.planned import PlannedPool
from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import Engine
from perilune.rehearse.events import WAKE
from perilune.rehearse.radix import Claim
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.forward import Forward
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.live import Live
from perilune.rehearse.replica.memory import Memory
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.replica.results import Results
from perilune.rehearse.simulate import Run
from perilune.rehearse.tally import Tally
from perilune.rehearse.ticks import TOKEN

Granted = Callable[[Live, int], None]
Ended = Callable[[Live, int], None]
Refuse = Callable[[Live, int, str], None]

CLIP_MAX_NEW_TOKENS: Final = 4096
NO_BACKUP: Final = "retracted"

NOT_MODELLED: Final = {
    "disaggregation_decode_enable_radix_cache": "--disaggregation-decode-enable-radix-cache keeps prefixes on decode",
    "disaggregation_decode_enable_offload_kvcache": "--disaggregation-decode-enable-offload-kvcache moves KV out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """What a decode server has beyond an `Engine`."""

    extra_slots: int  # disaggregation_decode_extra_slots
    reserved_tokens: int = 512  # num_reserved_decode_tokens
    backup: bool = True  # whether retracted requests keep their KV (disaggregation_decode_retraction_backup)


def decode_settings(item: PlannedPool) -> DecodeSettings:
    """Of a planned decode pool. Raises Refused for options that change the rules in ways that are not modelled."""
    v = item.resolved.values
    for field, what in NOT_MODELLED.items():
        if v[field]:
            raise Refused(f"{what}, which a rehearsal does not model.", where="decode pool")
    return DecodeSettings(
        extra_slots=v["disaggregation_decode_extra_slots"] or 0,
        reserved_tokens=v["num_reserved_decode_tokens"],
        backup=v["disaggregation_decode_retraction_backup"] != "none",
    )


class Place:
    """What is set apart for a request that does not run yet."""

    __slots__ = ("claim", "held", "since")

    def __init__(self, claim: Claim, held: int) -> None:
        self.claim = claim
        self.held = held
        self.since = 0  # when its KV had come


class DecodeRank(Rank):
    """The queue for room, and the requests between it and the running batch."""

    __slots__ = ("arriving", "landed", "looked", "retracted")

    def __init__(self, engine: Engine, tally: Tally) -> None:
        super().__init__(engine, tally)
        self.arriving: dict[Live, Place] = {}  # their KV is not here yet
        self.landed: deque[tuple[Live, Place]] = deque()
        self.retracted: deque[tuple[Live, int]] = deque()  # and since when
        self.looked = 0  # how many of them there were when room was last looked for

    @property
    def between(self) -> int:
        """Requests that have room and do not run."""
        return len(self.arriving) + len(self.landed)

    def free(self, place: Place) -> None:
        """Give back what was set apart."""
        self.cache.free_tokens(place.held)
        self.cache.retract(place.claim, 0)
        self.rows -= 1


class DecodeMemory(Memory):
    """Retraction on a decode server: the KV goes to host memory, or the request is refused."""

    __slots__ = ("backup",)

    backup: bool

    def _send_back(self, rank: Rank, live: Live, now: int) -> None:
        assert isinstance(rank, DecodeRank)  # noqa: S101 - a decode server has no other
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
        super().__init__(
            engine,
            costs,
            name=name,
            index=index,
            events=run.events,
            tally=run.tally,
            ended=ended,
            seed=run.seed,
            one_step=run.one_step,
            all_spans=run.all_spans,
        )
        self._settings = settings
        self._granted = granted
        self._memory.backup = settings.backup
        self.forward.results = self._results
        slowest = min(rate for rate, _ in engine.acceptance)
        self._ahead = max(engine.reserve - slowest // TOKEN, 0) if engine.reserve else 0

    def new_rank(self) -> DecodeRank:
        """A rank that sets room apart."""
        return DecodeRank(self.engine, self._tally)

    def land(self, live: Live, now: int) -> None:
        """The KV and the state of a request have come."""
        for rank in self._ranks():
            place = rank.arriving.pop(live, None)
            if place is not None:
                place.since = now
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
        """Also a request that not even an empty rank would set room apart for, which the engine leaves waiting."""
        why = super()._refusal(live)
        if why is not None:
            return why
        most = max(
            self._pages(live.isl) + self._settings.reserved_tokens, live.isl + min(live.osl, CLIP_MAX_NEW_TOKENS)
        )
        return "kv_tokens" if most > self.engine.tokens else None

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

    def _plan(self, now: int) -> bool:
        for rank in self._ranks():
            if rank.retracted:
                self._resume(rank, now)
            rank.looked = len(rank.retracted)
            if not rank.queue:
                self._block(rank, blocked=False)
            elif not rank.retracted:
                self._grant(rank, now)
        for lane in self.lanes:
            if lane.pending is None and isinstance(lane.rank, DecodeRank) and lane.rank.landed:
                lane.pending = self._let_in(lane, lane.rank, now)
        running = sum(self._running_on(rank) for rank in self.ranks)
        if running > self.admitted_max:
            self.admitted_max = running
        return any(lane.pending is not None for lane in self.lanes)

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
            cause = "transfer" if seats > len(landed) else engine.limit_cause
            tally.waits[cause] = tally.waits.get(cause, 0) + now - place.since
            live.claim, live.held = place.claim, place.held
            live.start, live.done, live.where = 0, live.isl, self.index
            tally.admitted(live, now)
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

    def _spare(self, rank: DecodeRank, longest: int = 0) -> int:
        """KV tokens that a new request may count on; `longest` is what a running one may still need."""
        active = self._running_on(rank) + rank.between
        return rank.cache.tokens_free - max(self._settings.reserved_tokens * active, longest)

    def _pages(self, tokens: int) -> int:
        """Whole pages for so much KV and what a speculative step keeps ahead of it."""
        page = self.engine.page
        return -(-(tokens + self._ahead) // page) * page

    def _set_apart(self, rank: DecodeRank, live: Live, pages: int) -> Place | None:
        """Take a row, slots and pages; None where there are no slots."""
        claim = Claim(live.claim.key)
        cache = rank.cache
        cache.match(claim, 0)
        if not cache.take_slots((claim,)):
            return None
        if not cache.allocate_tokens(pages):
            cache.retract(claim, 0)
            return None
        rank.rows += 1
        return Place(claim, pages)

    def _grant(self, rank: DecodeRank, now: int) -> None:
        """Give room to the head of the queue, and to those behind it, while there is some."""
        engine, settings = self.engine, self._settings
        granted: list[Live] = []
        batches = [lane.batch for lane in self.lanes if lane.rank is rank]
        retractable = sum([batch.kv for batch in batches]) // TOKEN
        most = [live.isl + min(live.osl, CLIP_MAX_NEW_TOKENS) for batch in batches for _, _, live in batch.heap]
        longest = max(most, default=0) - retractable
        blocked = False
        while rank.queue:
            live = rank.queue[0]
            if rank.rows >= engine.requests + settings.extra_slots:
                blocked = True
                rank.wait_for(engine.limit_cause, now)
                break
            pages = self._pages(live.isl)
            now_needed = pages + settings.reserved_tokens
            needed = max(now_needed, live.isl + min(live.osl, CLIP_MAX_NEW_TOKENS) - retractable)
            if needed > self._spare(rank, longest):
                blocked = now_needed > self._spare(rank)  # else it may fit as the others grow
                rank.wait_for("kv_tokens", now)
                break
            place = self._set_apart(rank, live, pages)
            if place is None:
                blocked = True
                rank.wait_for("state_slots", now)
                break
            rank.settle(now)
            rank.queue.popleft()
            rank.arriving[live] = place
            granted.append(live)
        self._block(rank, blocked=blocked)
        for live in granted:
            self._granted(live, now)

    def _resume(self, rank: DecodeRank, now: int) -> None:
        """Bring retracted requests back, the first of them first."""
        engine, settings = self.engine, self._settings
        while rank.retracted:
            live, since = rank.retracted[0]
            length = live.isl + live.out - 1
            pages = self._pages(length)
            if rank.rows >= engine.requests + settings.extra_slots:
                return
            if pages + settings.reserved_tokens > self._spare(rank):
                return
            place = self._set_apart(rank, live, pages)
            if place is None:
                return
            rank.retracted.popleft()
            waits = self._tally.waits
            waits["kv_tokens"] = waits.get("kv_tokens", 0) + now - since
            rank.arriving[live] = place
            back = now + self.costs.host_load(length, storage=False)
            self._events.at(back, WAKE, self._back, (live, place))

    def _back(self, now: int, came: tuple[Live, Place]) -> None:
        live, place = came
        if any(rank.arriving.get(live) is place for rank in self._ranks()):
            self.land(live, now)

    def _stretch(self) -> int:
        if any(len(rank.retracted) != rank.looked for rank in self._ranks()):
            return 1
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
