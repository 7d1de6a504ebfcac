"""One point rehearsed: what a sweep keeps of it."""

from __future__ import annotations

from typing import Any, Final

from perilune.errors import Refused
from perilune.plan.planned import Plan, plan
from perilune.rehearse.perform import Settings, perform
from perilune.rehearse.report.document import document
from perilune.rehearse.sweep.grid import Point
from perilune.rehearse.timing.profile import calibrated

KEPT: Final = (
    "basis",
    "error_band",
    "gpus",
    "duration_s",
    "ttft_s",
    "tpot_s",
    "itl_s",
    "e2e_s",
    "tokens_per_second_per_gpu",
    "output_tokens_per_second",
    "requests",
    "admitted_max",
    "admitted_cap",
    "waits_s",
    "cache",
    "notes",
)
"""Members of a rehearsal's JSON that a point keeps."""

Result = dict[str, Any]


def rehearsed(point: Point) -> Result:
    """The figures of a point, or `{"refused": why}` where the catalog forbids it or a pool would not boot.

    Raises UnusableInput for what no point of the sweep could use, such as a trace that cannot be read, and
    KeyboardInterrupt when the run was ended before its time.
    """
    try:
        planned = plan(point.deployment())
    except Refused as refusal:
        return {"refused": str(refusal)}
    why = no_boot(planned)
    return {"refused": why} if why else served(planned, point)


def no_boot(planned: Plan) -> str | None:
    """Why a pool would not boot; None when all do."""
    for item in planned.pools:
        found = item.ledger
        if not found.boots:
            error = found.error or found.load_error or found.allocation_error
            return f"The {item.pool.role} pool would not boot: {error}"
    return None


def served(planned: Plan, point: Point) -> Result:
    """The figures of a plan that boots."""
    platforms = dict.fromkeys(item.pool.platform for item in planned.pools)
    profiles = {name: calibrated(name, point.profile) for name in platforms}
    settings = Settings(
        replicas=point.servers.by_role([item.pool.role for item in planned.pools]),
        router=point.router,
        acceptance_length=point.acceptance_length,
        profiles={name: profile for name, profile in profiles.items() if profile is not None},
    )
    run = perform(planned, point.load, settings)
    if run.outcome.interrupted:
        raise KeyboardInterrupt
    found = document(run)
    return {name: found[name] for name in KEPT}
