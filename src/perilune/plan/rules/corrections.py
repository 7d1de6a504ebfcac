"""What to change in a command that the engine refuses: known edits, each proved by resolving again."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.memory import Ledger
from perilune.plan.rules.edits import Edit, edits_between
from perilune.plan.rules.refusals import KNOWN, Known, refusal
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

MOST_EDITS = 6


@dataclass(frozen=True, slots=True)
class Correction:
    """A server that the engine accepts, and the edits that led there (as one would type them)."""

    server: Server
    edits: tuple[str, ...]
    changes: tuple[Edit, ...] = ()
    first: Known | None = None  # the class whose remedy was the first step


def correct(server: Server, found: Ledger) -> Correction | None:
    """The nearest server that boots, by a few known edits; None where no known edit helps."""
    reached = _steps(server, found, MOST_EDITS)
    return reached[0] if reached and reached[1].boots else None


def answer(server: Server, found: Ledger) -> Correction | None:
    """The nearest server that boots or, where none is known, one that is past this refusal at least."""
    for most in (MOST_EDITS, 1):
        reached = _steps(server, found, most)
        if reached is not None and (reached[1].boots or most == 1):
            return reached[0]
    return None


def _steps(server: Server, found: Ledger, most: int) -> tuple[Correction, Ledger] | None:
    """At most `most` edits, each of which gets past the refusal before it; None when the first does not."""
    start, edits, first = server, list[str](), None
    while not found.boots and len(edits) < most:
        taken = _step(server, found)
        if taken is None:
            break
        known, server, found = taken
        edits.append(known.says)
        first = first or known
    if not edits:
        return None
    return Correction(server, tuple(edits), edits_between(start, server), first), found


def _step(server: Server, found: Ledger) -> tuple[Known, Server, Ledger] | None:
    error = refusal(found)
    for known in KNOWN:
        if known.remedy is None or not known.answers(error, found):
            continue
        edited = known.remedy(server, found)
        if edited == server:
            continue
        after = sized(edited, found)
        if refusal(after) != error:
            return known, edited, after
    return None
