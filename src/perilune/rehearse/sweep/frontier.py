"""Throughput against interactivity: which points no other point beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perilune.plan.memory.levers import LEVERS
from perilune.rehearse.sweep.grid import Point
from perilune.rehearse.sweep.rehearsed import Result


@dataclass(frozen=True, slots=True)
class Swept:
    """A finished point. `interactivity` is tokens per second that a user sees, the inverse of the median TPOT;
    `throughput` is input and output tokens per second and GPU. Both are None where nothing was served."""

    point: Point
    result: Result
    interactivity: float | None
    throughput: float | None
    best: bool = False  # on the frontier

    @property
    def refused(self) -> str | None:
        """Why there is no rehearsal of it."""
        why = self.result.get("refused")
        return None if why is None else str(why)

    @property
    def short(self) -> bool:
        """Whether a closed loop asks for more at once than the ledger admits, so that requests wait."""
        asked = self.point.load.concurrency
        return self.refused is None and asked is not None and asked > self.result["admitted_cap"]

    @property
    def unsure(self) -> str | None:
        """The least and most that the ledger may admit, where either would have changed the run."""
        if self.refused is not None or self.result["admitted_band"] is None:
            return None
        most, cap = self.result["admitted_max"], self.result["admitted_cap"]
        low, high = self.result["admitted_band"]
        tells = most > low or (most >= cap and high > cap)
        return f"{cap:,} may be {f'{low:,}' if low else 'no boot'} to {high:,}" if tells else None


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one deployment, under its loads."""

    name: str  # what tells it from the others
    letter: str
    points: tuple[Swept, ...]


def swept(points: Sequence[Point], results: Sequence[Result | None]) -> tuple[Swept, ...]:
    """The finished points in the order of the grid, those on the frontier marked."""
    found = [_measured(point, result) for point, result in zip(points, results, strict=True) if result is not None]
    best = _frontier(found)
    return tuple(
        Swept(one.point, one.result, one.interactivity, one.throughput, index in best)
        for index, one in enumerate(found)
    )


def series(found: Sequence[Swept]) -> tuple[Series, ...]:
    """The points by deployment, in order; letters a to z, then dots."""
    told = [{k: v for k, v in one.point.values().items() if k not in ("concurrency", "rate")} for one in found]
    varying = [name for name in dict.fromkeys(k for each in told for k in each) if len({t.get(name) for t in told}) > 1]
    groups: dict[str, list[Swept]] = {}
    for one, values in zip(found, told, strict=True):
        name = ", ".join(_said(axis, values[axis]) for axis in varying if values.get(axis)) or "as planned"
        groups.setdefault(name, []).append(one)
    return tuple(
        Series(name, chr(ord("a") + index) if index < 26 else ".", tuple(members))
        for index, (name, members) in enumerate(groups.items())
    )


def _said(axis: str, value: str) -> str:
    if axis == "servers":
        prefill, colon, decode = value.partition(":")
        return f"{prefill} prefill + {decode} decode" if colon else f"{value} server{'s' if value != '1' else ''}"
    if axis == "lever":
        named = {lever.id: lever.named for lever in LEVERS}
        return f"lever {named[value]}" if value in named else "no lever"
    return value if axis in ("hardware", "mode", "strategy", "quant") else f"{axis.replace('_', ' ')} {value}"


def _measured(point: Point, result: Result) -> Swept:
    tpot = result.get("tpot_s", {}).get("p50")
    throughput = result.get("tokens_per_second_per_gpu")
    if not tpot or not throughput:
        return Swept(point, result, None, None)
    return Swept(point, result, 1 / tpot, throughput)


def _frontier(found: Sequence[Swept]) -> set[int]:
    """Indexes of the points for which no other is as good in both and better in one."""
    measured = [
        (-one.interactivity, -one.throughput, index)
        for index, one in enumerate(found)
        if one.interactivity is not None and one.throughput is not None
    ]
    best: set[int] = set()
    top = 0.0
    last: tuple[float, float] | None = None
    for slow, small, index in sorted(measured):
        if -small > top or (slow, small) == last:
            best.add(index)
            top, last = max(top, -small), (slow, small)
    return best
