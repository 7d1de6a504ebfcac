"""One class of refusal: the text it answers, what it means in plain words, and the edit that gets past it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.remedies import Remedy

Applies = Callable[[Ledger], bool]


def always(_: Ledger) -> bool:
    """Every ledger."""
    return True


@dataclass(frozen=True, slots=True)
class Known:
    """One class of refusal: the error it answers, why the engine refuses, the edit in words, and the edit.

    `remedy` is None where nothing can be changed without knowing what was meant.
    """

    id: str
    error: re.Pattern[str]
    why: str
    says: str = ""
    remedy: Remedy | None = None
    flags: tuple[str, ...] = ()
    applies: Applies = always  # tells causes apart that share one text

    def answers(self, error: str, found: Ledger) -> bool:
        """Whether a refusal is of this class."""
        return bool(self.error.search(error)) and self.applies(found)


def known(
    name: str,
    error: str,
    why: str,
    says: str = "",
    remedy: Remedy | None = None,
    flags: tuple[str, ...] = (),
    applies: Applies = always,
) -> Known:
    """A class of refusal; `error` is a regular expression."""
    return Known(name, re.compile(error), why, says, remedy, flags, applies)


def refusal(found: Ledger) -> str:
    """The engine's text, empty when it boots."""
    return found.error or found.allocation_error or ""
