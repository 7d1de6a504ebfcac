"""Refitting a platform's efficiencies to a user's own results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.planned import Plan
from perilune.rehearse.acceptance import VARIABLE
from perilune.rehearse.calibration.closed_loop import simulate
from perilune.rehearse.calibration.fit import Residual, Seen, Target, fit, residuals, rounded, worst_error
from perilune.rehearse.calibration.results import Result
from perilune.rehearse.timing.basis import BOUNDS, efficient
from perilune.rehearse.timing.profile import VERSION, Profile

PULL = 0.3  # a unit of logarithm away from the shipped value counts like that much relative error
MOST_WAVES = 20  # of a closed loop that are rehearsed: its medians settle sooner
MOST_REQUESTS = 5_000  # but two waves
WIDEST = 0.9, 1.1  # a band is never tighter
FEW = 3  # runs that a band cannot be read off
FEW_BAND = 0.8, 1.25
LARGE = 0.3  # an error after the fit that efficiencies do not explain
FAR = 1.5  # a factor between a run and what published runs of its platform let expect
MOST_OFF = 2.0  # a factor between prediction and measurement that no efficiency explains


@dataclass(frozen=True, slots=True)
class Calibration:
    """A profile, and how far the runs were off before and are now."""

    profile: Profile
    before: tuple[Residual, ...]
    after: tuple[Residual, ...]

    @property
    def doubt(self) -> str | None:
        """Why the runs may be of something else than the plan; None where nothing says so."""
        if worst_error(self.after) > LARGE:
            return f"After the fit a run is still more than {LARGE:.0%} off"
        off = max(_off(one) for one in self.before)
        if off > FAR and efficient(self.profile.platform).basis == "fitted":
            label = platform(self.profile.platform).label
            return f"A run is {off:.2g} times off what published runs of {label} let expect"
        return None


def calibrate(plan: Plan, results: Sequence[Result], acceptance: float | None = None) -> Calibration:
    """Fit the efficiencies of the plan's platform to runs that were measured on it.

    The shipped efficiencies are the start, and a pull keeps what the runs do not tell. `acceptance` stands in for the
    acceptance length where a result has none. Raises UnusableInput for runs that tell nothing.
    """
    platforms = {item.pool.platform for item in plan.pools}
    if len(platforms) != 1:
        raise UnusableInput(
            f"The plan's pools are on {' and '.join(sorted(platforms))}, and a result does not tell them apart.",
            where="calibrate",
            fix="Calibrate each platform with results of its own.",
        )
    name = platforms.pop()
    targets = [_target(plan, result, acceptance) for result in results]
    start = efficient(name).efficiency
    before = residuals(targets, start, simulate)
    for one in before:
        if all(error is None for error in one.errors):
            raise UnusableInput(
                "No request of this run would be served on this plan.",
                where=one.target.name,
                fix="Check the lengths, and that it is the plan that ran.",
            )
    found = rounded(fit(targets, start, tuple(BOUNDS), PULL, simulate))
    after = residuals(targets, found, simulate)
    for one in after:
        off = _off(one)
        if off > MOST_OFF:
            raise UnusableInput(
                f"After the fit the prediction is still {off:,.3g} times off what this run measured.",
                where=one.target.name,
                fix="Check that it is the plan that ran, that the cache was flushed, and that nothing else was busy.",
            )
    below, above = _band(after)
    profile = Profile(
        perilune_profile=VERSION,
        platform=name,
        efficiency=found,
        below=below,
        above=above,
        results=len(targets),
        sources=tuple(f"{result.tool}: {result.source}" for result in results),
    )
    return Calibration(profile, before, after)


def _target(plan: Plan, result: Result, acceptance: float | None) -> Target:
    if result.ttft_s is None and result.tpot_s is None and result.tokens_per_s is None:
        raise UnusableInput("The run gives no TTFT, no TPOT and no throughput.", where=result.source)
    wave = result.concurrency or MOST_REQUESTS
    return Target(
        name=result.source,
        plan=plan,
        concurrency=result.concurrency,
        rate=result.rate,
        requests=min(result.requests, MOST_WAVES * wave, max(2 * wave, MOST_REQUESTS)),
        isl=result.isl,
        osl=result.osl,
        acceptance=acceptance if acceptance is not None else _accepted(plan, result),
        seen=Seen(
            result.ttft_s,
            result.tpot_s,
            None if result.tokens_per_s is None else result.tokens_per_s / plan.deployment.gpus,
        ),
        range_ratio=result.range_ratio,
    )


def _accepted(plan: Plan, result: Result) -> float | None:
    """The acceptance length of the run; None without speculation, and where the plan itself pins one."""
    speculating = [item for item in plan.pools if item.resolved["speculative_algorithm"] is not None]
    if not speculating or any(VARIABLE in item.resolved.env for item in speculating):
        return None
    if result.accepted is None:
        raise UnusableInput(
            "The plan speculates, and the run does not say how many tokens a step yielded.",
            where=result.source,
            fix="Give --acceptance-length, or --spec none where nothing speculated.",
        )
    return result.accepted


def _band(after: Sequence[Residual]) -> tuple[float, float]:
    """Seen over predicted: half as far again as the worst run, each way, as factors."""
    low, high = WIDEST if len(after) >= FEW else FEW_BAND
    worst = max(_off(one) for one in after) ** 1.5
    return round(min(low, 1 / worst), 3), round(max(high, worst), 3)


def _off(one: Residual) -> float:
    """The factor between prediction and measurement, of the quantity where it is largest."""
    return max(max(1 + error, 1 / (1 + error)) for error in one.errors if error is not None)
