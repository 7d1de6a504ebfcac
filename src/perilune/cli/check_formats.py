"""Findings for other programs: SARIF 2.1.0 and the annotations of GitHub's workflows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from perilune.plan.rules import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "rewrite": "warning", "capacity": "warning", "advice": "note"}
COMMANDS = {"error": "error", "rewrite": "warning", "capacity": "warning", "advice": "notice"}


def to_sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """One SARIF run with every finding."""
    ids = list(dict.fromkeys(finding.id for finding in findings))
    first = {finding.id: finding for finding in reversed(findings)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "perilune",
                        "version": version("perilune"),
                        "rules": [
                            {
                                "id": name,
                                "shortDescription": {"text": name.replace("-", " ")},
                                "defaultConfiguration": {"level": LEVELS[first[name].severity]},
                            }
                            for name in ids
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, ids.index(finding.id)) for finding in findings],
            }
        ],
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": _text(finding)},
    }
    if finding.where is not None:
        uri = quote(PurePath(finding.where.file).as_posix())
        place = {"artifactLocation": {"uri": uri}, "region": {"startLine": finding.where.line}}
        result["locations"] = [{"physicalLocation": place}]
    result["properties"] = {"severity": finding.severity, "flags": list(finding.flags), "source": finding.source}
    return result


def to_github(findings: Sequence[Finding]) -> Iterator[str]:
    """One workflow command a finding."""
    for finding in findings:
        values = {"file": finding.where.file, "line": str(finding.where.line)} if finding.where else {}
        values["title"] = f"{finding.severity} {finding.id}"
        given = ",".join(f"{name}={_property(value)}" for name, value in values.items())
        yield f"::{COMMANDS[finding.severity]} {given}::{_data(_text(finding))}"


def _text(finding: Finding) -> str:
    head = f"[{finding.pool}] " if finding.pool else ""
    return f"{head}{finding.message} {finding.fix}".strip()


def _data(text: str) -> str:
    """Escaped as the runner wants it; other control characters become `?`, for the log is shown on terminals."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(char if char.isprintable() else "?" for char in escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
