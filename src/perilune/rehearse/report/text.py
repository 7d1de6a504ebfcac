"""How figures are written for people: times with their unit, counts with commas, nothing that drives a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from perilune.plan.display import printable

WIDTH = 80
BLOCKS = "▁▂▃▄▅▆▇█"
UNITS = re.compile(r"(?<=\d) (?=(?:%|ms|s|h|min)(?!\w))")


def kept(text: str) -> str:
    """Printable text in which no line breaks between a number and its unit."""
    return UNITS.sub("\N{NO-BREAK SPACE}", printable(text))


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Printable lines of at most `width`; a number keeps its unit. `indent` starts the first, its width the others."""
    lines = textwrap.wrap(
        kept(text), width, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def short_time(seconds: float) -> str:
    """Seconds with three figures and a unit: `8.51 ms`, `11.6 s`, `2 h 05 min`, `71.8 days`."""
    if not seconds:
        return "0 s"
    if seconds < 0.9995:
        return f"{_three(seconds * 1000)} ms"
    if seconds < 599.5:
        return f"{_three(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes < 6000 else f"{_three(seconds / 86400)} days"


def rate(per_second: float) -> str:
    """So many a second: three figures where there are fewer than a hundred, else whole."""
    return f"{per_second:,.0f}" if per_second >= 99.95 else f"{per_second:.3g}"


def _three(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"


def share(part: float) -> str:
    """A share of one as per cent; what is not nothing is never shown as nothing."""
    if 0 < part < 0.001:
        return "under 0.1 %"
    return f"{part * 100:.1f} %" if part < 0.0995 else f"{part * 100:.0f} %"


def change(ratio: float) -> str:
    """A ratio as a signed change: `+4 %`."""
    per_cent = (ratio - 1) * 100
    return f"{per_cent:+.0f} %" if abs(per_cent) >= 9.95 else f"{per_cent:+.1f} %"


def resampled(values: Sequence[float], count: int) -> list[float]:
    """The means of at most `count` stretches of equal length, in order."""
    if len(values) <= count:
        return list(values)
    means = []
    for index in range(count):
        low, high = index * len(values) / count, (index + 1) * len(values) / count
        first, last = int(low), min(int(high), len(values) - 1)
        total = sum(values[first : last + 1]) - values[first] * (low - first) - values[last] * (last + 1 - high)
        means.append(total / (high - low))
    return means


def sparkline(values: Sequence[float], width: int, top: float) -> str:
    """One character a stretch of time, as high as its share of `top`; a blank is nothing at all."""
    marks = []
    for value in resampled(values, width):
        level = min(int(value / top * len(BLOCKS)), len(BLOCKS) - 1) if top > 0 else 0
        marks.append(BLOCKS[level] if value > 0 else " ")
    return "".join(marks)
