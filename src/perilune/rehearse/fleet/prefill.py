"""A prefill server of a PD pair: it computes prompts and keeps their KV until decode has it.

Rules of SGLang 0.5.23 (disaggregation/prefill.py): a request asks for one token, so that admission counts no more. It
queues once its decode server has pages for it, or at once where the allocation policy is `prefill_complete`. The KV of
a chunk is sent when the chunk is computed, the state with the last. Slots, pages and its place among the running
requests are held until the transfer is over; then the prompt goes into the radix cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perilune.errors import Refused
from perilune.plan.planned import PlannedPool
from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import Engine
from perilune.rehearse.live import Live
from perilune.rehearse.replica.door import INPUT_MARGIN
from perilune.rehearse.replica.forward import Forward
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.replica.results import Results
from perilune.rehearse.run import Ended, Run
from perilune.rehearse.tally import Tally

Computed = Callable[[Live, int, bool, int], None]
"""Told of a request, how much of its prompt is computed, whether that is all of it, and the instant."""


def check_prefill(item: PlannedPool) -> None:
    """Refuse a planned prefill pool whose prompts are computed before decode has room, to be thrown away at times."""
    v = item.resolved.values
    if v["optimistic_prefill_attempts"] > 0 and v["disaggregation_decode_allocation_policy"] == "early":
        raise Refused(
            "--optimistic-prefill-attempts starts prompts before decode has room, which a rehearsal does not model.",
            where="prefill pool",
            fix="Leave it out, or take --disaggregation-decode-allocation-policy prefill_complete on both roles.",
        )


class PrefillDoor:
    """Requests on a prefill server wait like others, but do not count as running."""

    def __init__(self, tally: Tally) -> None:
        self.waits = tally.waits

    def admitted(self, live: Live, now: int) -> None:
        """A request is being prefilled."""


class PrefillResults(Results):
    """Chunks are told of, and a prompt that is computed to its end stays."""

    __slots__ = ("computed", "kept")

    computed: Computed
    kept: dict[Live, Rank]  # computed to the end, and not sent yet

    def land(self, lanes: list[Lane], forward: Forward, start: int, steps: int, now: int) -> tuple[int, int]:
        """A step is over; the first token of a prompt is put out by decode."""
        for lane in lanes:
            flight = lane.flight
            if flight is not None and flight.cut is not None:
                self.computed(flight.cut, flight.cut_end, False, now)
        prompt, _ = super().land(lanes, forward, start, steps, now)
        return prompt, 0

    def _first_token(self, lane: Lane, live: Live, now: int) -> None:
        lane.rank.cache.checkpoint(live.claim, live.start, live.done)
        lane.batch.full = False
        self.kept[live] = lane.rank
        self.computed(live, live.done, True, now)


class PrefillReplica(Replica):
    """One prefill server. `computed` is called at the end of every chunk."""

    results_of = PrefillResults
    _results: PrefillResults

    def __init__(
        self, engine: Engine, costs: Costs, *, name: str, index: int, run: Run, ended: Ended, computed: Computed
    ) -> None:
        super().__init__(
            replace(engine, clip=1, reserve=0, speculates=False),
            costs,
            name=name,
            index=index,
            run=run,
            ended=ended,
        )
        self._results.computed = computed
        self._results.kept = {}

    def new_rank(self) -> Rank:
        """A rank whose requests do not count as running."""
        return Rank(self.engine, PrefillDoor(self._tally))

    def release(self, live: Live, now: int) -> None:
        """A transfer is over: the prompt goes into the cache, and everything else comes free."""
        rank = self._results.kept.pop(live)
        rank.cache.finish(live.claim, live.start, live.done, live.done)
        rank.rows -= 1
        self.completed += 1
        self._gone(rank, live, now)

    def drop(self, live: Live, now: int) -> None:
        """The decode server of a request is lost: what it holds comes free, wherever it is."""
        rank = self._results.kept.pop(live, None) or self._flying(live)
        if rank is not None:
            self._memory.release(rank, live, live.done, live.held)
        else:
            rank = self.away.pop(live, None)
            if rank is None:
                rank = next(one for one in self.ranks if live in one.queue)
                rank.settle(now)
                rank.queue.remove(live)
        self._gone(rank, live, now)

    def _flying(self, live: Live) -> Rank | None:
        """The rank that computes a request now; it will not go on with it."""
        for rank in self.ranks:
            if rank.chunked is live:
                rank.chunked = None
                rank.unstashed = False
                self._forget_chunk(live)
                return rank
        for lane in self.lanes:
            if live in lane.batch.coming:
                lane.batch.coming.remove(live)
                return lane.rank
            for flight in (lane.flight, lane.pending):
                if flight is not None and live in flight.done:
                    flight.done.remove(live)
                    self._forget_chunk(live)
                    return lane.rank
        return None

    def _forget_chunk(self, live: Live) -> None:
        for lane in self.lanes:
            for flight in (lane.flight, lane.pending):
                if flight is not None and flight.cut is live:
                    flight.cut = None

    def _gone(self, rank: Rank, live: Live, now: int) -> None:
        rank.prompts -= live.isl
        self.load -= 1
        live.done = live.held = 0
        self.look(rank, now)

    def fail(self, now: int) -> list[Live]:
        """The server is lost, prompts that are being sent included."""
        running = self._tally.running
        lost = super().fail(now) + list(self._results.kept)
        self._tally.running = running
        self._results.kept.clear()
        return lost

    def _refusal(self, live: Live) -> str | None:
        engine, isl = self.engine, live.isl
        if isl + live.osl > engine.context:
            return "context_length"
        if isl >= min(engine.context, engine.tokens) - INPUT_MARGIN:
            return "context_length" if engine.context <= engine.tokens else "kv_tokens"
        paged = -(-isl // engine.page) * engine.page
        return "kv_tokens" if paged + engine.page + 1 >= engine.tokens else None

    def _unblock(self, now: int) -> bool:
        """What is being sent will make room; only without it a request is too large."""
        if self._results.kept:
            return False
        running = self._tally.running
        refused = super()._unblock(now)
        self._tally.running = running
        return refused
