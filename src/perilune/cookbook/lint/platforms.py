"""Which platforms, roles and strategies a text names."""

from __future__ import annotations

import re
from functools import cache

from perilune.facts.hardware import platforms

_STRATEGIES = {
    "low-latency": r"low[ -]latency",
    "balanced": r"balanced",
    "high-throughput": r"high[ -]throughput",
    "long-context": r"long[ -]context",
}


@cache
def _names() -> tuple[tuple[str, re.Pattern[str]], ...]:
    found = []
    for name in platforms():
        if name == "950":
            pattern = r"Ascend 950|950(?:PR|DT)"
        elif name == "a3":
            pattern = r"(?:Ascend )?A3(?= |\b)"
        else:
            pattern = name
        found.append((name, re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])", re.IGNORECASE)))
    return tuple(found)


def platforms_in(text: str) -> tuple[str, ...]:
    """Return the ids of the platforms that a text names, in catalog order."""
    return tuple(name for name, pattern in _names() if pattern.search(text))


def strategies_in(text: str) -> tuple[str, ...]:
    """Return the strategies that a text names."""
    return tuple(name for name, pattern in _STRATEGIES.items() if re.search(pattern, text, re.IGNORECASE))


def pattern_of(name: str) -> str:
    """Return the regular expression text that finds a platform's name."""
    return dict(_names())[name].pattern
