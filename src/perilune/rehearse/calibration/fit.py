"""Fitting a platform's efficiencies to measurements, with the simulator in the loop.

The parameters are few and physical, they live on a logarithmic scale between bounds, and a weak pull towards the
starting values decides what the measurements cannot tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from msgspec.structs import asdict

from perilune.facts.timing import Efficiency
from perilune.plan.planned import Plan
from perilune.rehearse.timing.basis import BOUNDS

SOFT: Final = 0.02  # relative error beyond which a residual counts linearly: about what repeated runs differ by
STEP: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Seen:
    """What a closed loop showed: medians in seconds, (input + output) tokens per second and GPU. None: not given."""

    ttft_s: float | None
    tpot_s: float | None
    tokens_per_s_per_gpu: float | None

    @property
    def known(self) -> tuple[float | None, float | None, float | None]:
        """The three quantities in order."""
        return self.ttft_s, self.tpot_s, self.tokens_per_s_per_gpu


QUANTITIES: Final = ("TTFT", "TPOT", "tokens/s/GPU")


@dataclass(frozen=True, slots=True)
class Target:
    """One measured run: the deployment it ran on, what it was asked, and what it showed."""

    name: str
    plan: Plan
    concurrency: int | None  # requests kept in flight; None for an open loop
    rate: float | None  # requests per second of an open loop
    requests: int
    isl: int
    osl: int
    acceptance: float | None  # tokens a speculative step; None without speculation, or as the plan has it
    seen: Seen
    range_ratio: float = 1.0  # lengths are drawn from this share of the most to the most

    @property
    def platform(self) -> str:
        """The platform of every pool."""
        return self.plan.pools[0].pool.platform


def rounded(efficiency: Efficiency) -> Efficiency:
    """Three digits: more would promise too much."""
    return Efficiency(**{name: float(f"{value:.3g}") for name, value in asdict(efficiency).items()})


Simulate = Callable[[Target, Efficiency], Seen]


@dataclass(frozen=True, slots=True)
class Residual:
    """Predicted over seen, minus one, of one run; None where the run does not give the quantity."""

    target: Target
    predicted: Seen
    errors: tuple[float | None, float | None, float | None]


def residuals(targets: Sequence[Target], efficiency: Efficiency, simulate: Simulate) -> tuple[Residual, ...]:
    """How far the simulation is from each run."""
    return tuple(_residual(target, simulate(target, efficiency)) for target in targets)


def _residual(target: Target, predicted: Seen) -> Residual:
    pairs = zip(predicted.known, target.seen.known, strict=True)
    first, second, third = (None if found is None or seen is None else found / seen - 1 for found, seen in pairs)
    return Residual(target, predicted, (first, second, third))


def median_errors(found: Sequence[Residual]) -> tuple[float | None, ...]:
    """The median absolute error of each quantity."""
    sizes = [[abs(e) for r in found if (e := r.errors[n]) is not None] for n in range(len(QUANTITIES))]
    return tuple(median(each) if each else None for each in sizes)


def worst_error(found: Sequence[Residual]) -> float:
    """The largest absolute error of any quantity."""
    return max(abs(error) for residual in found for error in residual.errors if error is not None)


def fit(
    targets: Sequence[Target], start: Efficiency, free: Sequence[str], pull: float, simulate: Simulate
) -> Efficiency:
    """The efficiencies that come nearest to the runs. `free` may move, the others stay as `start` has them.

    `pull` weighs one unit of logarithm away from `start` like that much relative error of one quantity.
    """
    from scipy.optimize import least_squares

    origin = [math.log(getattr(start, name)) for name in free]

    def at(point: Sequence[float]) -> Efficiency:
        moved = {name: math.exp(value) for name, value in zip(free, point, strict=True)}
        return Efficiency(**{**asdict(start), **moved})

    def misses(values: Any, /) -> list[float]:
        point = [float(value) for value in values]
        found = residuals(targets, at(point), simulate)
        ratios = [math.log1p(error) for residual in found for error in residual.errors if error is not None]
        return [*ratios, *(pull * (value - first) for value, first in zip(point, origin, strict=True))]

    low = [math.log(BOUNDS[name][0]) for name in free]
    high = [math.log(BOUNDS[name][1]) for name in free]
    inside = [min(max(value, a + STEP), b - STEP) for value, a, b in zip(origin, low, high, strict=True)]
    solved = least_squares(
        misses, inside, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=[STEP] * len(inside)
    )
    return at([float(value) for value in solved.x])


def leave_one_out(
    targets: Sequence[Target], start: Efficiency, free: Sequence[str], pull: float, simulate: Simulate
) -> tuple[Residual, ...]:
    """Each run predicted by a fit that never saw it."""
    found: list[Residual] = []
    for n, target in enumerate(targets):
        rest = [*targets[:n], *targets[n + 1 :]]
        found.extend(residuals([target], fit(rest, start, free, pull, simulate), simulate))
    return tuple(found)
