"""What a fleet is made of: a server's limits and speed, and what it has beyond the plain path of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perilune.rehearse.costs import Costs
from perilune.rehearse.engine import Engine
from perilune.rehearse.fleet.arrivals import Arrivals
from perilune.rehearse.fleet.extras import Extras
from perilune.rehearse.hicache import HostSettings
from perilune.rehearse.images import Images, ImageSettings
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server of a fleet. With `host`, the engine's `new_cache` makes a `HostedCache`."""

    engine: Engine
    costs: Costs
    images: ImageSettings | None = None  # None: it meets no images, or their embeddings come from encoders
    host: HostSettings | None = None


def names_of(servers: Sequence[Server]) -> list[str]:
    """The servers' names in the report: the pool's, and a number in the pool."""
    numbers: dict[str, int] = {}
    names = []
    for server in servers:
        pool = server.engine.name
        number = numbers[pool] = numbers.get(pool, -1) + 1
        names.append(f"{pool}-{number}")
    return names


def equip(replica: Replica, server: Server, run: Run) -> None:
    """Give a new or restarted server what its images and its host tier need; nothing where it has neither."""
    if server.images is None and server.host is None:
        return
    costs = server.costs
    images = None
    if server.images is not None:
        images = Images(server.images, lambda tokens, graph: costs.encode(tokens, graph=graph), server.engine.ranks)
    replica.forward.extras = Extras(images, costs if server.host is not None else None, run.tally)
    replica.fetch = Arrivals(replica, images, server.host, costs, run)
