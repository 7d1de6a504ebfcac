"""What to change in a command that the engine refuses: known edits, each proved by resolving again."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.errors import UnusableInput
from perilune.plan.memory import Ledger
from perilune.plan.rules.edits import Edit, edits_between
from perilune.plan.rules.known import KNOWN
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

MOST_EDITS = 6


@dataclass(frozen=True, slots=True)
class Correction:
    """A server that the engine accepts, and the edits that led there (as one would type them)."""

    server: Server
    edits: tuple[str, ...]
    changes: tuple[Edit, ...] = ()


def correct(server: Server, found: Ledger) -> Correction | None:
    """The nearest server that boots, by a few known edits; None where no known edit helps."""
    start, edits, tried = server, list[str](), set[str]()
    while not found.boots and len(edits) < MOST_EDITS:
        error = found.error or found.allocation_error or ""
        known = next((k for k in KNOWN if k.remedy and k.says not in tried and k.answers(error, found)), None)
        if known is None or known.remedy is None:
            return None
        tried.add(known.says)
        edited = known.remedy(server, found)
        if edited == server:
            continue
        server = edited
        edits.append(known.says)
        try:
            found = sized(server, found)
        except UnusableInput:
            return None
    return Correction(server, tuple(edits), edits_between(start, server)) if found.boots else None
