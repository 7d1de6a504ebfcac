"""A finding about a page: one of the planner's findings, with the line it stands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perilune.plan.rules import Finding
from perilune.plan.rules.finding import Severity


@dataclass(frozen=True, slots=True)
class PageFinding:
    """What is wrong on a line, counted from 1."""

    line: int
    finding: Finding

    @property
    def is_error(self) -> bool:
        """Whether the page should not be published as it is."""
        return self.finding.severity == "error"

    def to_json(self, path: str) -> dict[str, Any]:
        """The finding as plain data: the planner's contract, with the path and the line in front."""
        return {"path": path, "line": self.line, **self.finding.at(path, self.line).to_json()}


def at(
    line: int, id_: str, message: str, fix: str = "", *, severity: Severity = "error", source: str = "checklist"
) -> PageFinding:
    """Return a finding of a line, counted from 1."""
    return PageFinding(line, Finding(id_, severity, message, fix, source=source))
