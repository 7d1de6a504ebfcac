"""A sketch of one quantity in bounded memory: exact count, mean and maximum, percentiles within 0.1 %."""

from __future__ import annotations

from perilune.rehearse.outcome import Distribution
from perilune.rehearse.ticks import SECOND

BITS = 11
"""Significant bits of a value that choose its bin: a bin is at most 2**-10 of its values wide."""

POINTS = 200
"""Points of the cumulative curve that a `Distribution` carries at most."""


class Histogram:
    """Whole numbers of ticks in bins that widen with the value, like a floating-point number's mantissa.

    A percentile lies between order statistics, as numpy takes it.

    The bin is chosen by integer shifts alone, so that adding a ramp in closed form and adding its values one at a time
    give the same bins on any machine.
    """

    __slots__ = ("_bins", "count", "max", "total")

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.max = 0

    def add(self, value: int, weight: int = 1) -> None:
        """Count `value` ticks (not negative) `weight` times."""
        self.count += weight
        self.total += value * weight
        if value > self.max:
            self.max = value
        shift = value.bit_length() - BITS
        index = (shift << BITS) + (value >> shift) if shift > 0 else value
        bins = self._bins
        if index in bins:
            bins[index] += weight
        else:
            bins[index] = weight

    def add_ramp(self, first: int, step: int, terms: int, weight: int = 1) -> None:
        """Count `first`, `first + step`, ... (`terms` of them, rising by `step` >= 0), each `weight` times."""
        if terms <= 0 or weight <= 0:
            return
        last = first + step * (terms - 1)
        low, high = _bin(first), _bin(last)
        self.count += terms * weight
        self.total += weight * (terms * first + step * (terms * (terms - 1) // 2))
        if last > self.max:
            self.max = last
        bins = self._bins
        below = 0
        while low < high:
            upto = -((first - _floor(low + 1)) // step)  # terms below the next bin's floor
            if upto > below:
                bins[low] = bins.get(low, 0) + (upto - below) * weight
                below = upto
            low = max(low + 1, _bin(first + step * below))
        bins[high] = bins.get(high, 0) + (terms - below) * weight

    def merge(self, other: Histogram) -> None:
        """Add what another sketch holds."""
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)
        for index, weight in other._bins.items():
            self._bins[index] = self._bins.get(index, 0) + weight

    def distribution(self) -> Distribution:
        """The sketch in seconds, with at most `POINTS` points of its cumulative curve."""
        if not self.count:
            return Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        p50, p90, p99 = (value / SECOND for value in self._quantiles((0.5, 0.9, 0.99)))
        return Distribution(
            count=self.count,
            mean=self.total / self.count / SECOND,
            p50=p50,
            p90=p90,
            p99=p99,
            max=self.max / SECOND,
            cdf=self._curve(),
        )

    def _quantiles(self, shares: tuple[float, ...]) -> list[float]:
        """Values at some shares, in one walk over the bins."""
        places = [share * (self.count - 1) for share in shares]
        ranks = sorted({rank for place in places for rank in (int(place), min(int(place) + 1, self.count - 1))})
        values: dict[int, float] = {}
        seen = 0
        for index, weight in sorted(self._bins.items()):
            seen += weight
            while len(values) < len(ranks) and ranks[len(values)] < seen:
                values[ranks[len(values)]] = self._middle(index)
        found = []
        for place in places:
            low, high = values[int(place)], values[min(int(place) + 1, self.count - 1)]
            found.append(low + (high - low) * (place - int(place)))
        return found

    def _middle(self, index: int) -> float:
        low, high = _floor(index), _floor(index + 1)
        return min((low + high - 1) / 2, self.max)

    def _curve(self) -> tuple[tuple[float, float], ...]:
        points = []
        seen = 0
        due = 0.0
        step = self.count / POINTS
        for index, weight in sorted(self._bins.items()):
            seen += weight
            if seen >= due or seen == self.count:
                points.append((self._middle(index) / SECOND, seen / self.count))
                due = seen + step
        points[-1] = (self.max / SECOND, 1.0)
        return tuple(points)


def _bin(value: int) -> int:
    shift = value.bit_length() - BITS
    return (shift << BITS) + (value >> shift) if shift > 0 else value


def _floor(index: int) -> int:
    """The least value of a bin, or of the next bin that can hold one."""
    shift, mantissa = index >> BITS, index & ((1 << BITS) - 1)
    if shift == 0:
        return index
    half = 1 << (BITS - 1)
    return max(mantissa, half) << shift
