"""One finding: what will happen, why, how to fix it, and who says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Severity = Literal["error", "rewrite", "capacity", "advice"]
ORDER: tuple[Severity, ...] = ("error", "rewrite", "capacity", "advice")


@dataclass(frozen=True, slots=True)
class Finding:
    """Severity `error` will not boot or answers wrong, `rewrite` is changed without a word,
    `capacity` boots but admits less than asked, `advice` is worth knowing.

    `pool` is the role it concerns in a fleet of several; `flags` are the flags to look at; `fix` is what
    to write instead, as flags where it can be.
    """

    id: str
    severity: Severity
    message: str
    fix: str = ""
    flags: tuple[str, ...] = ()
    source: str = ""
    pool: str = ""

    def on(self, pool: str) -> Finding:
        """The same finding, said of one pool of a fleet."""
        return replace(self, pool=pool)

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data, in the order of the contract."""
        return {
            "id": self.id,
            "severity": self.severity,
            "pool": self.pool or None,
            "flags": list(self.flags),
            "message": self.message,
            "fix": self.fix,
            "source": self.source,
        }


def by_severity(findings: list[Finding]) -> list[Finding]:
    """Findings with the worst first, otherwise in the order they were found."""
    return sorted(findings, key=lambda f: ORDER.index(f.severity))
