"""How long decode steps take in a row: each a little longer than the one before, as every request's KV grows."""

from __future__ import annotations

from math import isqrt


def lasts(first: int, slope: int, steps: int) -> int:
    """Ticks that so many steps take: `first`, `first + slope`, `first + 2 slope`, ..."""
    return steps * first + slope * (steps * (steps - 1) // 2)


def first_after(first: int, slope: int, wait: int) -> int:
    """The number of steps after which more than `wait` ticks have passed; `first` > 0, `slope` >= 0."""
    if not slope:
        return wait // first + 1
    # slope n**2 + (2 first - slope) n > 2 wait
    b = 2 * first - slope
    steps = (isqrt(b * b + 8 * slope * wait) - b) // (2 * slope)
    while steps > 0 and lasts(first, slope, steps) > wait:
        steps -= 1
    while lasts(first, slope, steps) <= wait:
        steps += 1
    return steps
