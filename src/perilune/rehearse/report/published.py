"""What was measured of the recipe that was rehearsed, and how the command that was measured differs from this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perilune.facts.measurements import AdmissionCap, Card, Point, measurements
from perilune.plan.published import SIZES, differing

if TYPE_CHECKING:
    from perilune.rehearse.report.rehearsal import PoolFacts, Rehearsal


@dataclass(frozen=True, slots=True)
class Published:
    """A published measurement of a recipe. `differs` says what the measured command has or lacks against this one."""

    card: Card
    point: Point
    same: bool  # the workload was this one, too
    comparable: bool  # nothing that differs tells in this workload
    differs: tuple[str, ...]


def published_of(run: Rehearsal) -> tuple[Published, ...]:
    """The points of the recipe, those of this very workload first. None where several pools serve."""
    if len(run.pools) != 1:
        return ()
    pool = run.pools[0]
    found = []
    for card in measurements().cards:
        if (card.cell, card.quant, card.spec) != (pool.recipe, pool.quant, pool.spec):
            continue
        flags = _differing(pool, card.cell, card.quant, card.spec, card.added)
        tells = not flags.keys() <= SIZES or (run.load.concurrency or 0) > run.cap
        for point in card.points:
            same = _same_workload(run, card, point)
            found.append(Published(card, point, same, same and not (flags and tells), tuple(flags.values())))
    return tuple(sorted(found, key=lambda one: not one.same))


def published_cap_of(run: Rehearsal) -> int | None:
    """Requests that one server of this very command was seen to admit; None where nobody has published it."""
    for pool in run.pools:
        for cap in measurements().admission_caps:
            if pool.role != "prefill" and _is_of(cap, pool) and not _differing(pool, cap.cell, cap.quant, cap.spec):
                return cap.requests
    return None


def _is_of(cap: AdmissionCap, pool: PoolFacts) -> bool:
    return (cap.cell, cap.quant, cap.spec) == (pool.recipe, pool.quant, pool.spec)


def _same_workload(run: Rehearsal, card: Card, point: Point) -> bool:
    load, method = run.load, measurements().method
    return (
        run.pools[0].replicas == 1
        and not run.settings  # no failures, no encoders
        and load.kind == "closed loop"
        and load.talk is None
        and not load.images
        and (load.isl, load.osl, load.range_ratio) == (method.isl, method.osl, 1)
        and (load.concurrency, load.total) == (point.concurrency, method.prompts_by_concurrency[point.concurrency])
        and card.acceptance_length == _pinned(run)
    )


def _pinned(run: Rehearsal) -> float | None:
    """The one acceptance length of all requests."""
    found = run.acceptance
    return None if found is None or found.mix else found.length


def _differing(pool: PoolFacts, cell: str, quant: str, spec: str, added: str = "") -> dict[str, str]:
    return differing(pool.command, pool.env, cell=cell, quant=quant, spec=spec, added=added)
