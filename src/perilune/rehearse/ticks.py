"""The units of the simulation: whole femtoseconds and whole thousandths of a token, so that sums are exact.

Advancing a decode batch a thousand steps in closed form must give the very instant that a thousand single steps
give; floating-point seconds would not.
"""

from __future__ import annotations

from typing import Final

SECOND: Final = 10**15
"""Ticks in a second: a tick is a femtosecond."""

TOKEN: Final = 1000
"""Thousandths of a token in one token: a speculative step advances a request by 4.5 tokens on average."""


def ticks(seconds: float) -> int:
    """Seconds as ticks, to the nearest."""
    return round(seconds * SECOND)


def seconds(count: int) -> float:
    """Ticks as seconds."""
    return count / SECOND
