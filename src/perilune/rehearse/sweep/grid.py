"""The points of a sweep: every combination of the values that were given for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Final

from perilune.errors import UnusableInput
from perilune.plan.compose import Choice, compose, parse_env, parse_knob, parse_set, parse_unset
from perilune.plan.deployment import Deployment, Role
from perilune.plan.memory.levers import LEVERS
from perilune.plan.planfile import read_plan
from perilune.rehearse.fleet.policies import PolicyName
from perilune.rehearse.offered import OfferedLoad

MOST_POINTS: Final = 100_000

CHOSEN: Final = (
    "hardware",
    "mode",
    "strategy",
    "prefill_strategy",
    "quant",
    "spec",
    "vlm_transport",
    "hicache",
    "preset",
    "gpus",
)
"""Axes of the deployment, named as `Choice` names them, the slowest to change first."""

NO_LEVER: Final = "none"


@dataclass(frozen=True, slots=True)
class Servers:
    """How many servers there are: of a plan with one pool, or of prefill and decode. None: as planned."""

    unified: int | None = None
    prefill: int | None = None
    decode: int | None = None

    @property
    def said(self) -> str:
        """Such as `2` or `1:3`; empty for the plan's own count."""
        if self.prefill is not None:
            return f"{self.prefill}:{self.decode}"
        return "" if self.unified is None else str(self.unified)

    def by_role(self, roles: Sequence[Role]) -> dict[Role, int]:
        """Counts for the pools of a plan; raises UnusableInput when the plan has other pools."""
        if self.prefill is not None and self.decode is not None:
            if "unified" in roles:
                raise UnusableInput("The plan has one pool.", where="--pd", fix="Give --replicas, or plan --mode pd.")
            return {"prefill": self.prefill, "decode": self.decode}
        if self.unified is None:
            return {}
        if len(roles) > 1:
            raise UnusableInput("The plan has two pools.", where="--replicas", fix="Give --pd P:D.")
        return {roles[0]: self.unified}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One rehearsal of a sweep: a deployment, how many servers of it, and the load."""

    load: OfferedLoad
    plan_file: Path | None = None
    choice: Mapping[str, str | int] = field(default_factory=dict)
    sets: tuple[str, ...] = ()
    unsets: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()
    isl: int | None = None  # what the plan is made for, where the load is a trace
    osl: int | None = None
    lever: str = NO_LEVER
    servers: Servers = Servers()
    router: PolicyName | None = None
    acceptance_length: float | None = None
    profile: Path | None = None
    corrected: bool = False  # a pool that would not boot is rehearsed in its variant that does

    def deployment(self) -> Deployment:
        """Composed, or read from the plan file, with the lever pulled; raises Refused or UnusableInput."""
        if self.plan_file is not None:
            found = read_plan(self.plan_file)
        else:
            overrides = (
                *(parse_unset(text) for text in self.unsets),
                *(parse_set(text) for text in self.sets),
                *(parse_env(text) for text in self.envs),
            )
            knobs = tuple(parse_knob(text) for text in self.knobs)
            load, isl = self.load, self.load.planned_isl or self.isl
            workload = {"isl": isl, "osl": load.osl or self.osl, "concurrency": load.concurrency}
            found = compose(Choice(**self.choice, **workload, overrides=overrides, knobs=knobs))  # type: ignore[arg-type]
        return pulled(found.redacted(), self.lever)

    def values(self) -> dict[str, str]:
        """What tells the point from others of its sweep, by axis, as text."""
        load = self.load
        return {
            **{name: str(value) for name, value in self.choice.items()},
            "lever": self.lever,
            "servers": self.servers.said,
            "concurrency": "" if load.concurrency is None else str(load.concurrency),
            "rate": "" if load.rate is None else f"{load.rate:g}",
        }


def pulled(deployment: Deployment, lever: str) -> Deployment:
    """A deployment with a capacity lever on every pool; raises UnusableInput for a lever that nobody knows."""
    if lever == NO_LEVER:
        return deployment
    known = {each.id: each for each in LEVERS}
    if lever not in known:
        names = ", ".join((NO_LEVER, *(each.named for each in LEVERS)))
        raise UnusableInput(f"Unknown lever {lever[:40]!r}.", where="--lever", fix=f"Known: {names}.")
    pools = tuple(replace(pool, server=known[lever].apply(pool.server)) for pool in deployment.pools)
    return replace(deployment, pools=pools)


def points(
    base: Point,
    axes: Mapping[str, Sequence[str | int]],
    servers: Sequence[Servers],
    levers: Sequence[str],
    loads: Sequence[OfferedLoad],
) -> tuple[Point, ...]:
    """Every combination, deployments slowest and loads fastest. Raises UnusableInput for too many."""
    names = [name for name in CHOSEN if axes.get(name)]
    lists = [axes[name] for name in names]
    count = len(servers) * len(levers) * len(loads)
    for values in lists:
        count *= len(values)
    if count > MOST_POINTS:
        raise UnusableInput(f"The grid has {count:,} points; {MOST_POINTS:,} are the most.", where="sweep")
    return tuple(
        replace(base, choice=dict(zip(names, chosen, strict=True)), lever=lever, servers=number, load=load)
        for chosen in product(*lists)
        for lever in levers
        for number in servers
        for load in loads
    )
