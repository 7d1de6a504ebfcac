"""Values that no server can mean, and the one that no server can do without."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import Edit, edits_between, remove, write
from perilune.plan.rules.finding import Severity
from perilune.plan.rules.refusals.remedies import TP, whole_nodes
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.settled import Absurd
from perilune.plan.rules.subject import Subject

MODEL = "--model-path"
LONGEST_VALUE = 24


@rule("value-absurd", "error", "values that no server of the platform can have")
def absurd(s: Subject) -> Iterator[Says]:
    """A value that the parser reads and no server can mean; everything else is judged without it."""
    for one in s.absurd:
        shown = one.value if len(one.value) <= LONGEST_VALUE else f"{one.value[:LONGEST_VALUE]}..."
        yield Says(f"{one.name} {shown} cannot be used: {one.why}", flags=(one.name,), edits=_instead(s, one))


def _instead(s: Subject, one: Absurd) -> tuple[Edit, ...]:
    """All the accelerators of the nodes for the TP size; any other option has a value of its own."""
    if one.name == TP:
        return edits_between(s.known, whole_nodes(s.known, s.ledger))
    return remove(one.name) if one.name.startswith("-") else (Edit("unset-env", one.name),)


@rule("model-missing", "error", f"{ENGINE}, argument parser")
def no_model(s: Subject) -> Iterator[Says]:
    """A server is told which model to serve. Flags without a program may be part of a command, and are advised."""
    if not s.no_model:
        return
    path = s.resolved.model.path
    severity: Severity | None = "advice" if s.server.bare else None
    yield Says(
        f"No model is named, and the engine's parser demands one; {path} is taken.",
        flags=(MODEL,),
        edits=(write(MODEL, path),),
        severity=severity,
    )


RULES = (no_model, absurd)
