"""Which rule judges each published constraint and each report from the field, or why none does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

import msgspec

from perilune.facts.load import load


class Covered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules that judge one thing; without any, `by` says what else answers it, and `why`."""

    rules: tuple[str, ...] = ()
    by: Literal["resolve", "compose", "ledger", "sources", "none"] | None = None
    why: str = ""


class Coverage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constraints of the recipes by id, and reports from the field by number."""

    constraints: Mapping[str, Covered]
    cases: Mapping[str, Covered]


@cache
def coverage() -> Coverage:
    """Everything in `rules/coverage.yaml`."""
    return load("rules/coverage.yaml", Coverage)
