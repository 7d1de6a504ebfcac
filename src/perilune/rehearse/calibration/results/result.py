"""One run of a load tool, whichever tool it was, and checked access to what a tool wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perilune.errors import UnusableInput

MOST = 1e12
MOST_CONCURRENCY = 10_000
MOST_TOKENS = 10_000_000  # of one request, each way


@dataclass(frozen=True, slots=True)
class Result:
    """What a run was and what it showed. Latencies are medians in seconds, the rate of tokens is input and output."""

    source: str
    tool: str
    concurrency: int | None  # requests kept in flight; None for an open loop
    rate: float | None  # requests per second of an open loop
    requests: int
    isl: int
    osl: int
    range_ratio: float  # lengths are drawn from this share of the most to the most
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_s: float | None
    accepted: float | None = None  # tokens a speculative step yielded


@dataclass(frozen=True, slots=True)
class Entry:
    """A mapping of a tool's file and where it is."""

    values: Mapping[str, Any]
    where: str

    def inner(self, *names: str) -> Entry:
        """The mapping under these keys; raises UnusableInput where there is none."""
        found: Any = self.values
        for name in names:
            found = found.get(name) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise UnusableInput(f"{'.'.join(names)} is missing.", where=self.where)
        return Entry(found, f"{self.where}, {'.'.join(names)}")

    def number(self, name: str) -> float:
        """A finite number above 0; raises UnusableInput."""
        found = self.maybe(name)
        if found is None:
            raise UnusableInput(f"{name} is missing.", where=self.where)
        return found

    def maybe(self, name: str) -> float | None:
        """A finite number above 0, None where the field is absent or null; raises UnusableInput for anything else."""
        value = self.values.get(name)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value) or not 0 < value <= MOST:
            raise UnusableInput(f"{name} is {_shown(value)}, not a finite number above 0.", where=self.where)
        return float(value)

    def count(self, name: str) -> int:
        """A whole number above 0; raises UnusableInput."""
        value = self.number(name)
        if value != int(value):
            raise UnusableInput(f"{name} is {value:g}, not a whole number.", where=self.where)
        return int(value)

    def text(self, name: str) -> str:
        """A string, empty where the field is no string."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


def loop(entry: Entry, concurrency: float | None, rate: float | None) -> tuple[int | None, float | None]:
    """(concurrency, rate) of a loop that a rehearsal can repeat: one of them. Raises UnusableInput."""
    if concurrency is not None and rate is not None:
        raise UnusableInput(
            "The run had a rate and a limit of concurrency, which a rehearsal cannot repeat.",
            where=entry.where,
            fix="Measure a closed loop (a concurrency) or an open one (a rate).",
        )
    if concurrency is None and rate is None:
        raise UnusableInput(
            "The run says neither a concurrency nor a rate.",
            where=entry.where,
            fix="Measure a closed loop (a concurrency) or an open one (a rate).",
        )
    if concurrency is not None and not 1 <= concurrency <= MOST_CONCURRENCY:
        raise UnusableInput(f"The concurrency {concurrency:g} cannot be used.", where=entry.where)
    return None if concurrency is None else int(concurrency), rate


def _shown(value: object) -> str:
    return repr(value)[:60]
