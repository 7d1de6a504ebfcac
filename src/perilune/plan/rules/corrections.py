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


@dataclass(frozen=True, slots=True)
class Step:
    """One refusal on the way to a server that boots: the command, its ledger, and what gets past it.

    `known` and `edits` are None and empty where nothing known does; such a step is the last.
    """

    server: Server
    found: Ledger
    known: Known | None = None
    edits: tuple[Edit, ...] = ()


def correct(server: Server, found: Ledger) -> Correction | None:
    """The nearest server that boots, by a few known edits; None where no known edit helps."""
    start, said = server, list[str]()
    while not found.boots and len(said) < MOST_EDITS:
        taken = _step(server, found)
        if taken is None:
            return None
        known, server, found = taken
        said.append(known.says)
    return Correction(server, tuple(said), edits_between(start, server)) if said and found.boots else None


def steps(server: Server, found: Ledger) -> list[Step]:
    """Every refusal that stands between a command and its start, each with the edits that get past it alone."""
    way: list[Step] = []
    while not found.boots and len(way) < MOST_EDITS:
        taken = _step(server, found)
        if taken is None:
            return [*way, Step(server, found)]
        known, after, later = taken
        way.append(Step(server, found, known, edits_between(server, after)))
        server, found = after, later
    return way


def _step(server: Server, found: Ledger) -> tuple[Known, Server, Ledger] | None:
    error, cause = refusal(found), _cause(found)
    for known in KNOWN:
        if known.remedy is None or not known.answers(error, found):
            continue
        edited = known.remedy(server, found)
        if edited == server:
            continue
        after = sized(edited, found)
        if (refusal(after), _cause(after)) != (error, cause):
            return known, edited, after
    return None


def _cause(found: Ledger) -> str | None:
    """The class of a refusal: one text can have several causes."""
    error = refusal(found)
    return next((known.id for known in KNOWN if known.answers(error, found)), None) if error else None
