"""Pages for the next decode step, and who gives them up when there are none.

Source: SGLang 0.5.23 `managers/schedule_batch.py` (`check_decode_mem`, `retract_decode`, `release_req`).
"""

from __future__ import annotations

from collections.abc import Callable

from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.live import Live
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.lane import Lane
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
            self._retract(lane, now, ahead=0)
            need = lane.batch.needs(1)
        lane.taken = 0
        self.take(lane, need, 1)
        lane.taken = need

    def take(self, lane: Lane, need: int, steps: int) -> None:
        """Allocate `need` tokens for decode steps, `steps` of them in all; before each the engine evicts for more.

        It makes sure of a page for every request, whether it needs one or not (`alloc_paged_token_slots_decode`).
        """
        cache, batch, page = lane.rank.cache, lane.batch, self._engine.page
        sure = 0 if self._engine.speculates or page == 1 else batch.count * page
        if cache.tokens_free >= need + sure:
            cache.tokens_free -= need
        else:
            last = batch.needs(steps) - (batch.needs(steps - 1) if steps > 1 else 0)
            cache.allocate_tokens(need, max(sure - last, 0))

    def look_ahead(self, lane: Lane, now: int) -> bool:
        """While a decode step is under way, see to it that the one after it has its pages, as overlap decides early.

        False when it has not, but a request that is about to end will free some: then it is decided when that has.
        A request retracted now loses the token it is about to get.
        """
        batch, rank = lane.batch, lane.rank
        stays = batch.count > 0
        if lane.decodes and lane.flight is None:
            need = batch.needs(2) - lane.taken
            ending = self._known_to_end(batch)
            stays = len(ending) < batch.count
            if need > rank.room:
                for live in ending:
                    need -= batch.allocated(live, 2) - batch.allocated(live, 1)
                if need > rank.room:
                    if ending:
                        return False
                    self._retract(lane, now, ahead=1)
                    return True
        if stays or lane.flight is not None:
            rank.decay(1)
        return True

    def _known_to_end(self, batch: Batch) -> list[Live]:
        """The requests that are known to end with the step under way."""
        ending = batch.ending()
        return [live for live in ending if batch.surely_ends(live)] if self._engine.speculates else ending

    def _retract(self, lane: Lane, now: int, *, ahead: int) -> None:
        """Send back those with the least output, the longest prompts first, until the rest fits (`retract_decode`).

        `ahead` steps are under way, for which all have their pages.
        """
        batch, rank, engine = lane.batch, lane.rank, self._engine
        order = sorted(
            (entry[2] for entry in batch.heap),
            key=lambda live: (batch.generated(live), -live.isl, -live.index),
        )
        for live in order[:-1]:
            self._leave(lane, live, ahead)
            self._send_back(rank, live, now)
            rank.cache.allocate_tokens(0, batch.count * engine.retract_steps)
            if batch.needs(1 + ahead) - batch.needs(ahead) <= rank.room:
                break
        else:
            if batch.needs(1 + ahead) - batch.needs(ahead) > rank.room:
                live = order[-1]
                self._leave(lane, live, ahead)
                rank.prompts -= live.isl
                self._tally.running -= 1
                self._refuse(live, now, "kv_tokens")
        if not engine.ignore_eos:
            kept = [entry[2] for entry in batch.heap]
            decoded = sum(batch.generated(live) for live in kept) + engine.retract_steps * len(kept)
            rank.ratio = min(decoded * SHARE // (sum(live.osl for live in kept) + 1), SHARE)

    def _send_back(self, rank: Rank, live: Live, now: int) -> None:
        """A retracted request waits for its turn again."""
        rank.settle(now)
        rank.queue.append(live)
        rank.wait_for("kv_tokens", now)
        self._tally.retract(live, now)

    def _leave(self, lane: Lane, live: Live, ahead: int) -> None:
        """Take a running request out of its batch and give back all it holds."""
        batch = lane.batch
        held = batch.allocated(live, ahead)
        if live.join_step < batch.steps:
            live.last = batch.last
        generated = batch.generated(live)
        batch.remove({live})
        live.out = generated
        batch.full = False
        self.release(lane.rank, live, live.isl + generated - 1 + ahead, held)

    def release(self, rank: Rank, live: Live, length: int, held: int) -> None:
        """A request gives back its pages, its slots and its place; what is in the tree stays there."""
        page = self._engine.page
        rank.cache.free_tokens(held + -length // page * page)
        rank.cache.retract(live.claim, length)
        live.done = live.held = 0
        rank.rows -= 1
