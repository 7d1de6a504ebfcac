"""What happens to a request between its arrival at a server and its server's queue."""

from __future__ import annotations

from perilune.rehearse.costs import Costs
from perilune.rehearse.events import WAKE
from perilune.rehearse.fleet.link import Link
from perilune.rehearse.hicache import HostedCache, HostSettings
from perilune.rehearse.images import Images
from perilune.rehearse.live import Live
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.run import Run

CAUSE = "storage"
FETCHED = "prompt tokens were fetched from the store (HiCache L3) to host memory"
POOL_FULL = "images found the feature pool (SGLANG_MM_FEATURE_CACHE_MB) full and went over the CPU"


class Arrivals:
    """Of one server: pixels find their place, and a prefix that only the store has is fetched.

    Fetches of one server come one after the other. With `best_effort` the request queues meanwhile, and has what has
    come when its turn is there. Otherwise it is passed over by those behind it, and takes its place among them again
    when it stops waiting; with `timeout` its patience counts from when nobody older is left in the queue, looked at
    whenever that time is over.
    """

    def __init__(
        self, replica: Replica, images: Images | None, host: HostSettings | None, costs: Costs, run: Run
    ) -> None:
        self._replica = replica
        self._images = images
        self._host = host if host is not None and host.storage else None
        self._costs = costs
        self._run = run
        self._line = Link()

    def __call__(self, live: Live, rank: Rank, now: int) -> bool:
        """Whether the request is put into the queue later."""
        if self._images is not None and live.request.images:
            full = self._images.arrive(live)
            if full:
                self._run.tally.remark(POOL_FULL, full)
        return self._host is not None and self._fetch(live, rank, now, self._host)

    def _fetch(self, live: Live, rank: Rank, now: int, host: HostSettings) -> bool:
        cache = rank.cache
        if not isinstance(cache, HostedCache):
            return False
        key = live.claim.key
        end = cache.stored(key, live.length - 1)
        if not end:
            return False
        tokens = end - max(cache.peek(key, end), cache.host.peek(key, end))
        patience = host.patience(tokens)
        events = self._run.events
        comes = self._line.carry(now, self._costs.host_load(tokens, storage=True))
        events.at(comes, WAKE, self._come, (live, rank, now, end))
        if patience == 0:
            return False
        self._replica.away[live] = rank
        if patience is not None and comes > now + patience:
            events.at(now + patience, WAKE, self._late, (live, rank, now, patience))
        return True

    def _come(self, now: int, fetched: tuple[Live, Rank, int, int]) -> None:
        live, rank, since, end = fetched
        away = self._replica.away.get(live) is rank
        if isinstance(rank.cache, HostedCache) and (away or live in rank.queue):
            self._run.tally.remark(FETCHED, rank.cache.fetched(live.claim.key, end))
        if away:
            self._queue(now, live, rank, since)

    def _late(self, now: int, waited: tuple[Live, Rank, int, int]) -> None:
        live, rank, since, patience = waited
        if self._replica.away.get(live) is not rank:
            return
        if any(older.index < live.index for older in rank.queue):
            self._run.events.at(now + patience, WAKE, self._late, waited)
        else:
            self._queue(now, live, rank, since)

    def _queue(self, now: int, live: Live, rank: Rank, since: int) -> None:
        del self._replica.away[live]
        waits = self._run.tally.waits
        waits[CAUSE] = waits.get(CAUSE, 0) + now - since
        rank.settle(now)
        queue = rank.queue
        behind = len(queue)
        while behind and queue[behind - 1].index > live.index:
            behind -= 1
        queue.insert(behind, live)
        self._replica.look(rank, now)
