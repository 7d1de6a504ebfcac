"""One finding: what will happen, why, how to fix it, and who says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from perilune.plan.rules.edits import Edit

Severity = Literal["error", "rewrite", "capacity", "advice"]
ORDER: tuple[Severity, ...] = ("error", "rewrite", "capacity", "advice")


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the input; `line` counts from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Severity `error` will not boot or answers wrong, `rewrite` is changed without a word,
    `capacity` boots but admits less than asked, `advice` is worth knowing.

    `pool` is the role it concerns in a fleet of several, and `member` the place of the server among them;
    `flags` are the flags and variables to look at, the one to point at first; `fix` is what to write instead
    in words, `edits` the same for a machine.
    """

    id: str
    severity: Severity
    message: str
    fix: str = ""
    flags: tuple[str, ...] = ()
    source: str = ""
    pool: str = ""
    edits: tuple[Edit, ...] = ()
    where: Where | None = None
    member: int | None = None

    def on(self, pool: str) -> Finding:
        """The same finding, said of one pool of a fleet."""
        return replace(self, pool=pool)

    def at(self, file: str, line: int) -> Finding:
        """The same finding, placed in the input."""
        return replace(self, where=Where(file, line))

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data, in the order of the contract."""
        return {
            "id": self.id,
            "severity": self.severity,
            "where": None if self.where is None else {"file": self.where.file, "line": self.where.line},
            "pool": self.pool,
            "flags": list(self.flags),
            "message": self.message,
            "fix": self.fix,
            "source": self.source,
            "edits": [edit.to_json() for edit in self.edits],
        }


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Findings with the worst first, otherwise in the order they were found."""
    return sorted(findings, key=lambda f: ORDER.index(f.severity))
