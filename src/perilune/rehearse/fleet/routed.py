"""Servers that prefill and decode, behind a router; perhaps with encoders in front."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from perilune.rehearse.fleet.encoders import EncoderPool, EncoderSettings
from perilune.rehearse.fleet.flags import RouterSettings
from perilune.rehearse.fleet.front import Front
from perilune.rehearse.fleet.group import Group
from perilune.rehearse.fleet.outages import Lost, Outage
from perilune.rehearse.fleet.policies import policy
from perilune.rehearse.fleet.server import Server
from perilune.rehearse.live import Live
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.run import Run


class RoutedFleet(Front):
    """A fleet of unified servers."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        router: RouterSettings | None = None,
        outages: Sequence[Outage] = (),
        lost: Lost = "resubmit",
        encoders: EncoderSettings | None = None,
    ) -> None:
        super().__init__(servers, outages, lost)
        self._router = router or RouterSettings()
        self._settings = encoders
        self._group: Group
        self._encoders: EncoderPool | None = None

    def open(self, run: Run) -> Sequence[Replica]:
        """Make the servers, the router and the encoders."""
        random = Random(f"router {run.seed}")  # noqa: S311 - a simulation, not a secret
        self._group = Group(policy(self._router.decode, random, self._router.cache_aware), len(self.servers))
        self._encoders = None if self._settings is None else self._settings.pool(run)
        return super().open(run)

    def new_replica(self, index: int, run: Run) -> Replica:
        """A server that tells this fleet what ended."""
        server = self.servers[index]
        return Replica(
            server.engine,
            server.costs,
            name=self.names[index],
            index=index,
            run=run,
            ended=self._ended,
        )

    def route(self, live: Live, now: int) -> bool:
        """Send a request to the server that the router picks, by way of the encoders if it has images."""
        group = self._group
        if not group.any_up:
            return False
        index = group.send(live.request, now)
        if self._encoders is not None and live.request.images:
            self._encode(self._encoders, live, index, now)
        else:
            self.replicas[index].submit(live, now)
        return True

    def _encode(self, encoders: EncoderPool, live: Live, index: int, now: int) -> None:
        replica = self.replicas[index]
        rank = replica.ranks[0]  # one that is not replaced while the server is up
        replica.away[live] = rank

        def encoded(then: int) -> None:
            waits = self._run.tally.waits
            if replica.away.get(live) is rank:
                del replica.away[live]
                waits["encoder"] = waits.get("encoder", 0) + then - now
                replica.submit(live, then)

        encoders.encode(live.request.images, now, encoded)

    def _ended(self, live: Live, now: int) -> None:
        self._group.answered(live.where)
        self._run.ended(live, now)

    def take_down(self, index: int, now: int) -> list[Live]:
        """All that the server has is lost."""
        lost = self.replicas[index].fail(now)
        self._group.down(index)
        self._group.loads[index] = 0
        return lost

    def put_back(self, index: int) -> None:
        """The router may send requests there again."""
        self._group.back(index)
