"""A deployment: a model, pools of servers, a router, and the workload it is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from perilune.plan.server import Server

Role = Literal["unified", "prefill", "decode"]

NODE_RANK = "<node-rank>"


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the fleet: tokens in and out of an average request, and requests at once."""

    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None

    @property
    def length(self) -> int | None:
        """Tokens of an average request, input and output together."""
        return None if self.isl is None or self.osl is None else self.isl + self.osl


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that no source publishes: its placeholder in the command, what it is, and a likely value."""

    placeholder: str
    flag: str
    what: str
    assume: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Servers of one role: `replicas` of a server that spans `nodes` nodes and `gpus` GPUs.

    `server` is the command of every node; `<node-rank>` in it stands for the node's rank.
    """

    role: Role
    platform: str
    nodes: int
    gpus: int
    server: Server
    replicas: int = 1
    recipe: str = ""  # id of the catalog entry it was composed from
    quant: str = ""
    spec: str = ""
    image: str = ""
    verification: str = ""
    hints: tuple[str, ...] = ()  # what to do on the machines
    notes: tuple[str, ...] = ()  # what to know about the command
    unpublished: tuple[Unknown, ...] = ()

    @property
    def servers(self) -> tuple[Server, ...]:
        """The server's command on every node, the head first."""
        return tuple(self._on(rank) for rank in range(self.nodes))

    def _on(self, rank: int) -> Server:
        argv = tuple(str(rank) if word == NODE_RANK else word for word in self.server.argv)
        return replace(self.server, argv=argv)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One immutable deployment. `router` is the router's argument list, None without a router."""

    model: str
    pools: tuple[Pool, ...]
    router: tuple[str, ...] | None = None
    workload: Workload = Workload()
    sources: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def pool(self, role: str) -> Pool | None:
        """The pool of a role; None where the deployment has none."""
        return next((pool for pool in self.pools if pool.role == role), None)

    def redacted(self) -> Deployment:
        """The same deployment with every secret in its commands hidden."""
        pools = tuple(replace(pool, server=pool.server.redacted()) for pool in self.pools)
        return replace(self, pools=pools)

    @property
    def nodes(self) -> int:
        """Nodes of all pools and replicas."""
        return sum(pool.nodes * pool.replicas for pool in self.pools)

    @property
    def gpus(self) -> int:
        """GPUs of all pools and replicas."""
        return sum(pool.gpus * pool.replicas for pool in self.pools)

    @property
    def unpublished(self) -> tuple[tuple[Role, Unknown], ...]:
        """Every value that stands as a placeholder because no source publishes it, with its role."""
        return tuple((pool.role, unknown) for pool in self.pools for unknown in pool.unpublished)
