"""What every fleet has in front: requests that no server takes, servers that fail, requests that start over.

The router learns of a failure at once; the failures that its circuit breaker and health checks need to see first are
not modelled. It sends a request again after its first back-off of 50 ms (`--retry-initial-backoff-ms`), without jitter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from perilune.rehearse.fleet.outages import Lost, Outage, check_outages
from perilune.rehearse.fleet.server import Server, equip, names_of
from perilune.rehearse.live import Live
from perilune.rehearse.replica.chronicle import Stretch
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.run import Run
from perilune.rehearse.ticks import SECOND, ticks

OUTAGE: Final = 3
"""At one instant servers fail last, and come back then."""

BACK_OFF: Final = SECOND // 20
NO_SERVER: Final = "no_server"
SERVER_LOST: Final = "server_lost"


class Front(ABC):
    """Servers that may fail, and the requests that wait for one to come back."""

    def __init__(self, servers: Sequence[Server], outages: Sequence[Outage], lost: Lost) -> None:
        """Raises UnusableInput for outages that cannot be."""
        self.servers = tuple(servers)
        self.names = names_of(self.servers)
        self.replicas: list[Replica] = []
        self._outages = check_outages(outages, self.names)
        self._lost = lost
        self._held: dict[Live, int] = {}  # and since when
        self._run: Run

    def open(self, run: Run) -> Sequence[Replica]:
        """Make the servers, empty, and schedule their failures."""
        self._run = run
        run.tally.replicas.extend(self.names)
        self.replicas = [self.new_replica(index, run) for index in range(len(self.servers))]
        for replica, server in zip(self.replicas, self.servers, strict=True):
            equip(replica, server, run)
        for outage in self._outages:
            run.events.at(ticks(outage.at_s), OUTAGE, self._fail, outage)
        return self.replicas

    @abstractmethod
    def new_replica(self, index: int, run: Run) -> Replica:
        """Make one server."""

    @abstractmethod
    def route(self, live: Live, now: int) -> bool:
        """Send a request to a server; False when there is none for it."""

    @abstractmethod
    def take_down(self, index: int, now: int) -> list[Live]:
        """A server is lost: have nothing go there any more, and return the requests that are lost with it."""

    @abstractmethod
    def put_back(self, index: int) -> None:
        """A server is there again."""

    def submit(self, live: Live, now: int) -> None:
        """A request comes, or comes again."""
        if not self.route(live, now):
            self._held[live] = now

    def _fail(self, now: int, outage: Outage) -> None:
        index = self.names.index(outage.replica)
        replica = self.replicas[index]
        lost = self.take_down(index, now)
        equip(replica, self.servers[index], self._run)
        back = now + ticks(outage.down_s)
        replica.chronicle.add(Stretch(now, back, "down", len(lost), 0))
        self._run.events.at(back, OUTAGE, self._restore, index)
        for live in sorted(lost, key=lambda live: live.index):
            if self._lost == "resubmit":
                live.lose()
                self.submit(live, now)
            elif self._lost == "router" and live.first < 0:
                live.lose()
                self._run.events.at(now + BACK_OFF, OUTAGE, self._again, live)
            else:
                self._run.tally.reject(live, now, SERVER_LOST)
                self._run.ended(live, now)

    def _again(self, now: int, live: Live) -> None:
        self.submit(live, now)

    def _restore(self, now: int, index: int) -> None:
        self.replicas[index].restore(now)
        self.put_back(index)
        held, self._held = self._held, {}
        waits = self._run.tally.waits
        for live, since in held.items():
            waits[NO_SERVER] = waits.get(NO_SERVER, 0) + now - since
            self.submit(live, now)
