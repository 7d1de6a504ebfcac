"""One named number of a plan, with how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from perilune.plan.memory.pools import GIB


class Basis(StrEnum):
    """How far a figure can be trusted."""

    EXACT = "exact"  # the engine's own arithmetic on what is known
    PREDICTED = "predicted"  # rests on a figure that was estimated, not measured on this server
    PUBLISHED = "published"  # taken from a public log or page


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its unit (`B`, `GiB`, `slots`, `tokens`, `requests`, `rows`, or none), and its derivation.

    `formula` has the numbers put in; `inputs` names the figures it was made from.
    """

    name: str
    label: str
    value: int | float | str | None
    unit: str
    formula: str
    source: str
    basis: Basis = Basis.EXACT
    inputs: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        value = self.value
        if value is None:
            return "none"
        if self.unit == "B" and isinstance(value, int):
            return f"{value:,} B ({value / GIB:,.2f} GiB)" if abs(value) >= 1 << 20 else f"{value:,} B"
        if isinstance(value, float):
            return f"{value:,.4f} {self.unit}".rstrip()
        return f"{value:,} {self.unit}".rstrip() if isinstance(value, int) else str(value)
