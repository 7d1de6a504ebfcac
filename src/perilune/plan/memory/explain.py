"""The derivation of any figure of a ledger, down to what it was made from."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from perilune.errors import UnusableInput
from perilune.plan.memory.figures import Basis, Figure
from perilune.plan.memory.ledger import Ledger


def derive(ledger: Ledger, name: str) -> str:
    """How `name` came about: its value, formula with numbers, source, and the same for its inputs, indented.

    Raises UnusableInput for a name the ledger has no figure of, with the closest one.
    """
    figures = ledger.figures
    if name not in figures:
        close = difflib.get_close_matches(name[:100], figures, n=1)
        hint = f"Did you mean {close[0]}?" if close else "`perilune explain list ...` names every one."
        why = f" The plan has none, because: {ledger.error}" if ledger.error else ""
        raise UnusableInput(f"There is no figure {name[:100]!r}.{why}", where="explain", fix=hint)
    return "\n".join(_told(ledger, figures[name], 0, set()))


def _told(ledger: Ledger, figure: Figure, depth: int, told: set[str]) -> Iterator[str]:
    indent = "  " * depth
    note = "" if figure.basis is Basis.EXACT else f" [{figure.basis}]"
    yield f"{indent}{figure.name} = {figure.shown}{note}"
    if figure.name in told:
        yield f"{indent}  (see above)"
        return
    told.add(figure.name)
    yield f"{indent}  {figure.label}: {figure.formula}"
    yield f"{indent}  source: {figure.source}"
    for name in figure.inputs:
        if name in ledger.figures:
            yield from _told(ledger, ledger.figures[name], depth + 1, told)
