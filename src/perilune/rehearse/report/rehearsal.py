"""What was rehearsed and what came of it: pools, traffic, assumptions, target, outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from perilune.facts.hardware import platform
from perilune.plan.deployment import Role
from perilune.plan.display import shape_text
from perilune.plan.memory import Ledger
from perilune.plan.memory.pools import GIB
from perilune.plan.planned import ENGINE, PlannedPool
from perilune.rehearse.acceptance import Acceptance
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.report.published import Published, published_cap_of, published_of
from perilune.rehearse.tally import Targets

ATTAINMENT = 0.9
"""Share of the requests that must meet both targets for an SLO to be met, as goodput is usually defined."""

ANSWERING = ("unified", "decode")


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A line of a pool's ledger: GiB of the fullest GPU, and how they come about."""

    label: str
    gib: float
    formula: str


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool as it was rehearsed.

    `cap` is what the ledger admits on all its replicas together, `cap_band` the least and most within the band of the
    predicted memory, None where that is exact.
    """

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
    cap_band: tuple[int, int] | None = None
    memory: tuple[MemoryLine, ...] = ()

    @property
    def unsure(self) -> bool:
        """Whether the memory's band changes how many requests are admitted."""
        return self.cap_band is not None and self.cap_band[0] != self.cap_band[1]

    @property
    def unit(self) -> str:
        """What is counted as a GPU: a GPU, a die or a card."""
        return platform(self.platform).unit

    @property
    def label(self) -> str:
        """The platform's name."""
        return platform(self.platform).label


def facts_of(item: PlannedPool, replicas: int) -> PoolFacts:
    """What a report says of a planned pool that boots."""
    found, pool = item.ledger, item.pool
    if found.sizing is None or found.inputs is None:
        raise ValueError(f"the {pool.role} pool does not boot")
    servers = found.inputs.attn_dp * replicas
    band = found.requests_range
    return PoolFacts(
        role=pool.role,
        platform=pool.platform,
        recipe=pool.recipe,
        quant=pool.quant,
        spec=pool.spec,
        shape=shape_text(item.resolved.values),
        gpus=pool.gpus,
        replicas=replicas,
        cap=found.sizing.requests * servers,
        binds=str(found.sizing.binds),
        command=(*item.server.program, *item.server.argv),
        env=dict(pool.server.env),
        cap_band=None if band is None else (band.low * servers, band.high * servers),
        memory=_memory(found),
    )


def _memory(found: Ledger) -> tuple[MemoryLine, ...]:
    """The lines of the fullest GPU that are worth a hundredth of a GiB; they add up to its memory but for the rest."""
    fullest = min(found.stages, key=lambda stage: stage.free_gib).index
    lines = [(line, line.value / GIB) for line in found.lines(fullest) if isinstance(line.value, int)]
    return tuple(MemoryLine(line.label, gib, line.formula) for line, gib in lines if abs(gib) >= 0.005)


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
    def cap_band(self) -> tuple[int, int] | None:
        """The least and most that the cap may be; None where the memory is exact."""
        bands = [pool.cap_band for pool in self.pools if pool.role in ANSWERING and pool.cap_band is not None]
        return (sum(low for low, _ in bands), sum(high for _, high in bands)) if bands else None

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
        """Requests that one server of this very command was seen to admit; None where nobody has published it."""
        return published_cap_of(self)

    @property
    def published(self) -> tuple[Published, ...]:
        """What was measured of this recipe, the points of this very workload first."""
        return published_of(self)
