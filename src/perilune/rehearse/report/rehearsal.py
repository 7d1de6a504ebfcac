"""What was rehearsed and what came of it: pools, traffic, assumptions, target, outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perilune.facts.hardware import platform
from perilune.facts.measurements import Card, Point, measurements
from perilune.plan.deployment import Role
from perilune.plan.planned import ENGINE, PlannedPool
from perilune.rehearse.acceptance import Acceptance
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.tally import Targets

ATTAINMENT = 0.9
"""Share of the requests that must meet both targets for an SLO to be met, as goodput is usually defined."""

ANSWERING = ("unified", "decode")

WIDTHS = {"TP": "tp_size", "PP": "pp_size", "DP": "attn_dp_size", "DCP": "dcp_size", "EP": "ep_size"}


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool as it was rehearsed. `cap` is what the ledger admits on all its replicas together."""

    role: Role
    platform: str
    recipe: str
    quant: str
    spec: str
    shape: str  # such as TP8 × DCP8
    gpus: int
    replicas: int
    cap: int
    binds: str  # state | kv | asked
    command: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def label(self) -> str:
        """The platform's name."""
        return platform(self.platform).label


def facts_of(item: PlannedPool, replicas: int) -> PoolFacts:
    """What a report says of a planned pool that boots."""
    found, pool = item.ledger, item.pool
    if found.sizing is None or found.inputs is None:
        raise ValueError(f"the {pool.role} pool does not boot")
    return PoolFacts(
        role=pool.role,
        platform=pool.platform,
        recipe=pool.recipe,
        quant=pool.quant,
        spec=pool.spec,
        shape=shape_of(item.resolved.values),
        gpus=pool.gpus,
        replicas=replicas,
        cap=found.sizing.requests * found.inputs.attn_dp * replicas,
        binds=str(found.sizing.binds),
        command=(*item.server.program, *item.server.argv),
        env=dict(pool.server.env),
    )


def shape_of(values: Mapping[str, Any]) -> str:
    """The parallel widths above one, as `TP8 × DCP8`."""
    return " × ".join(f"{short}{values[name]}" for short, name in WIDTHS.items() if values[name] > 1 or short == "TP")


@dataclass(frozen=True, slots=True)
class Published:
    """A published measurement of the recipe that was rehearsed; `same` where the workload was this one, too."""

    card: Card
    point: Point
    same: bool


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A rehearsal as reports read it."""

    model: str
    pools: tuple[PoolFacts, ...]
    load: OfferedLoad
    outcome: Outcome
    router: str | None = None
    acceptance: Acceptance | None = None
    slo: Targets | None = None
    basis_says: str = ""  # what the step times are: `fitted to ...`
    settings: Mapping[str, str] = field(default_factory=dict)  # what else shaped the run: failures, profile

    @property
    def engine(self) -> str:
        """The release whose policy is rehearsed."""
        return ENGINE

    @property
    def plan_id(self) -> str:
        """A digest of the model and of every pool's command, environment and count."""
        parts = [
            self.model,
            [[p.role, p.platform, p.gpus, p.replicas, p.command, sorted(p.env.items())] for p in self.pools],
        ]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]

    @property
    def cap(self) -> int:
        """Requests that the ledger admits on all servers that generate."""
        return sum(pool.cap for pool in self.pools if pool.role in ANSWERING)

    @property
    def goodput(self) -> float | None:
        """Share of the requests within the SLO; None without one, or where nothing was served."""
        return self.outcome.goodput.get("share") if self.slo is not None else None

    @property
    def slo_met(self) -> bool | None:
        """Whether enough requests were within the SLO; None without one."""
        if self.slo is None:
            return None
        return self.goodput is not None and self.goodput >= ATTAINMENT

    @property
    def published_cap(self) -> int | None:
        """Requests that this recipe was seen to admit on one server; None where nobody has published it."""
        of = {(pool.recipe, pool.quant, pool.spec) for pool in self.pools if pool.role in ANSWERING}
        caps = (cap.requests for cap in measurements().admission_caps if (cap.cell, cap.quant, cap.spec) in of)
        return next(caps, None)

    @property
    def published(self) -> tuple[Published, ...]:
        """What was measured of this recipe, the points of this very workload first."""
        if len(self.pools) != 1:
            return ()
        pool, load, method = self.pools[0], self.load, measurements().method
        of = (pool.recipe, pool.quant, pool.spec)
        alike = (
            pool.replicas == 1
            and load.kind == "closed loop"
            and (load.isl, load.osl, load.range_ratio) == (method.isl, method.osl, 1)
        )
        found = [
            Published(card, point, alike and point.concurrency == load.concurrency)
            for card in measurements().cards
            if (card.cell, card.quant, card.spec) == of
            for point in card.points
        ]
        return tuple(sorted(found, key=lambda one: not one.same))
