"""One point rehearsed: what a sweep keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perilune.errors import Refused
from perilune.plan.planned import Plan, plan
from perilune.rehearse.booting import corrected, no_boot
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
    "admitted_band",
    "waits_s",
    "cache",
    "notes",
    "settings",
)
"""Members of a rehearsal's JSON that a point keeps."""

Result = dict[str, Any]


def rehearsed(point: Point) -> Result:
    """The figures of a point, or `{"refused": why}` where it is forbidden, would not boot or is not modelled.

    Raises UnusableInput for what no point of the sweep could use, such as a trace that cannot be read, and
    KeyboardInterrupt when the run was ended before its time.
    """
    try:
        planned = plan(point.deployment())
        edits: Mapping[str, str] = {}
        if point.corrected:
            planned, edits = corrected(planned)
        why = no_boot(planned)
        return {"refused": why} if why else served(planned, point, edits)
    except Refused as refusal:
        return {"refused": str(refusal)}


def served(planned: Plan, point: Point, edits: Mapping[str, str]) -> Result:
    """The figures of a plan that boots; `edits` made its pools boot."""
    platforms = dict.fromkeys(item.pool.platform for item in planned.pools)
    profiles = {name: calibrated(name, point.profile) for name in platforms}
    settings = Settings(
        replicas=point.servers.by_role([item.pool.role for item in planned.pools]),
        router=point.router,
        acceptance_length=point.acceptance_length,
        profiles={name: profile for name, profile in profiles.items() if profile is not None},
        corrected=edits,
    )
    run = perform(planned, point.load, settings)
    if run.outcome.interrupted:
        raise KeyboardInterrupt
    found = document(run)
    return {name: found[name] for name in KEPT}
