"""One rehearsal from end to end: a plan, the load that is offered, and settings become servers, a run, a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from perilune.errors import UnusableInput
from perilune.plan.deployment import Role
from perilune.plan.planned import Plan, PlannedPool
from perilune.rehearse.acceptance import Acceptance, acceptance_for
from perilune.rehearse.engine import Engine, acceptance_of, engine_of
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.radix.planned import cache_settings
from perilune.rehearse.report.rehearsal import Rehearsal, facts_of
from perilune.rehearse.simulate import Unified, simulate
from perilune.rehearse.tally import Targets
from perilune.rehearse.timing import Efficient, ServerCosts, costs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What shapes a rehearsal beside its plan and its load. `replicas` overrides the plan's count of a role."""

    replicas: Mapping[Role, int]
    router: str | None = None
    acceptance_length: float | None = None
    targets: Targets | None = None
    profile: Efficient | None = None
    records: bool = False  # keep every request
    spans: bool = False  # keep every stretch of every server


def perform(
    plan: Plan,
    load: OfferedLoad,
    settings: Settings,
    *,
    progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Rehearsal:
    """Rehearse; `stop` ends it early and `progress` is told the requests that ended, both asked now and then.

    Raises UnusableInput for a plan that serves nobody, and for a trace that cannot be read.
    """
    roles = {item.pool.role for item in plan.pools}
    if roles not in ({"unified"}, {"prefill", "decode"}):
        raise UnusableInput(
            f"A {min(roles)} pool alone serves nobody.", where="rehearse", fix="Plan both roles: --mode pd."
        )
    for role in settings.replicas:
        if role not in roles:
            raise UnusableInput(f"This plan has no {role} pool.", where="replicas", fix=f"It has {' '.join(roles)}.")
    accepted = {item.pool.role: acceptance_for(item, settings.acceptance_length) for item in plan.pools}
    servers = [
        server
        for item in plan.pools
        for server in [_server(item, accepted[item.pool.role], settings.profile)] * _count(item, settings)
    ]
    found = simulate(
        load.traffic(),
        Unified(servers),
        seed=load.seed,
        records=settings.records,
        spans=settings.spans,
        targets=settings.targets,
        progress=progress,
        stop=stop,
    )
    return Rehearsal(
        model=plan.deployment.model,
        pools=tuple(facts_of(item, _count(item, settings)) for item in plan.pools),
        load=load,
        outcome=found,
        router=settings.router,
        acceptance=accepted.get("unified") or accepted.get("decode"),
        slo=settings.targets,
        basis_says="; ".join(dict.fromkeys(costs.said for _, costs in servers)),
    )


def _count(item: PlannedPool, settings: Settings) -> int:
    return settings.replicas.get(item.pool.role, item.pool.replicas)


def _server(item: PlannedPool, accepted: Acceptance | None, profile: Efficient | None) -> tuple[Engine, ServerCosts]:
    acceptance = None if accepted is None else acceptance_of(accepted.length)
    return engine_of(item, partial(RadixCache, **cache_settings(item)), acceptance=acceptance), costs_of(
        item.ledger, profile
    )
