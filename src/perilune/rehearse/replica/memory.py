"""Pages for the next decode step, and who gives them up when there are none.

Source: SGLang 0.5.23 `managers/schedule_batch.py` (`check_decode_mem`, `retract_decode`, `release_req`).
"""

from __future__ import annotations

from collections.abc import Callable

from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.replica.lane import Lane
from perilune.rehearse.replica.live import Live
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.tally import Tally

Refuse = Callable[[Live, int, str], None]


class Memory:
    """Allocates for decode and retracts; `refuse` is told of a request that not even the whole pool can hold."""

    __slots__ = ("_engine", "_refuse", "_tally")

    def __init__(self, engine: Engine, tally: Tally, refuse: Refuse) -> None:
        self._engine = engine
        self._tally = tally
        self._refuse = refuse

    def make_room(self, lane: Lane, now: int) -> None:
        """Allocate the next decode step's pages, retracting requests where there are none."""
        need = lane.batch.needs(1)
        if need > lane.rank.room:
            need = self._retract(lane, now)
        if need:
            lane.rank.cache.allocate_tokens(need)
        lane.taken = need

    def _retract(self, lane: Lane, now: int) -> int:
        """Send back those with the least output, the longest prompts first, until the rest fits (`retract_decode`)."""
        batch, rank, engine = lane.batch, lane.rank, self._engine
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
        lane.rank.wait_for("kv_tokens", now)
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
        self.release(lane.rank, live, live.isl + generated - 1, held)

    def release(self, rank: Rank, live: Live, length: int, held: int) -> None:
        page = self._engine.page
        rank.cache.free_tokens(held + -length // page * page)
        rank.cache.retract(live.claim, length)
        live.done = live.held = 0
        rank.rows -= 1
