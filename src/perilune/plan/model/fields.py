"""Reading checked fields out of a config that may hold anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perilune.errors import UnusableInput

MAX_INT = 1 << 40


@dataclass(frozen=True, slots=True)
class Fields:
    """A section of a config. Every reader raises UnusableInput with one sentence that names the field."""

    values: Mapping[str, Any]
    where: str  # what the reader is looking at, such as `config.json text_config`

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, *, low: int = 1, high: int = MAX_INT, default: int | None = None) -> int:
        """A whole number in [low, high]; `default` when absent or null."""
        value = self.values.get(name)
        if value is None:
            if default is not None:
                return default
            raise self.bad(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(name, f"must be a whole number, not {_shown(value)}")
        if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
            raise self.bad(name, f"must be a whole number, not {_shown(value)}")
        if not low <= value <= high:
            raise self.bad(name, f"is {_shown(value)}; it must be from {low} to {high}")
        return int(value)

    def fraction(self, name: str, *, default: float) -> float:
        """A number in [0, 1]; `default` when absent or null."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.bad(name, f"must be a number from 0 to 1, not {_shown(value)}")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A true or false; `default` when absent or null."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad(name, f"must be true or false, not {_shown(value)}")
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """A short string; `default` when absent or null."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value or len(value) > 200:
            raise self.bad(name, f"must be a short text, not {_shown(value)}")
        return value

    def integers(self, name: str, *, low: int, high: int, at_most: int = 10_000) -> tuple[int, ...]:
        """A list of whole numbers in [low, high]; raises when absent."""
        value = self.values.get(name)
        if not isinstance(value, list | tuple) or len(value) > at_most:
            raise self.bad(name, f"must be a list of at most {at_most} whole numbers, not {_shown(value)}")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not low <= item <= high:
                raise self.bad(name, f"holds {_shown(item)}; its entries must be whole numbers from {low} to {high}")
        return tuple(value)

    def names(self, name: str, *, at_most: int = 10_000) -> tuple[str, ...]:
        """A list of strings; raises when absent."""
        value = self.values.get(name)
        if not isinstance(value, list | tuple) or len(value) > at_most:
            raise self.bad(name, f"must be a list of at most {at_most} texts, not {_shown(value)}")
        for item in value:
            if not isinstance(item, str):
                raise self.bad(name, f"holds {_shown(item)}; its entries must be texts")
        return tuple(value)

    def section(self, name: str) -> Fields:
        """A nested section; raises when absent or not a mapping."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            raise self.bad(name, "is missing" if value is None else f"must be a section, not {_shown(value)}")
        return Fields(value, f"{self.where} {name}")

    def bad(self, name: str, what: str) -> UnusableInput:
        """The error for a field that cannot be used."""
        return UnusableInput(f"{name} {what}.", where=self.where)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
