"""The findings of `perilune check` in the form that was asked for, and the exit code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

import click
import msgspec

from perilune.cli.check_inputs import Checked
from perilune.cli.check_view import print_placed, summary
from perilune.plan.rules import Finding, by_severity
from perilune.plan.sources.judge import Judge, Routers, note_finding
from perilune.plan.sources.tokens import without_secrets

_OBEYED = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class Form(Enum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def findings_of(group: Sequence[Checked], judge: Judge, routers: Routers) -> list[Finding]:
    """Everything to say of inputs that belong together."""
    servers = [server for one in group for server in one.servers]
    own = [router for one in group for router in one.reading.routers]
    notes = [note_finding(note, one.text) for one in group for note in one.reading.notes]
    return without_secrets([*dict.fromkeys(notes), *judge.findings(servers, routers or own)])


def report(groups: Sequence[Sequence[Checked]], judge: Judge, routers: Routers, form: Form, *, strict: bool) -> int:
    """Print what was found, and say how it ends."""
    findings = by_severity(finding for group in groups for finding in findings_of(group, judge, routers))
    checked = [one for group in groups for one in group]
    match form:
        case Form.JSON:
            _emit(to_json(checked, findings))
        case Form.SARIF:
            from perilune.cli.check_formats import to_sarif

            _emit(to_sarif(findings))
        case Form.GITHUB:
            from perilune.cli.check_formats import to_github

            for line in to_github(findings):
                click.echo(line)
        case Form.TEXT:
            print_placed(findings)
            servers = sum(len(one.servers) for one in checked)
            files = len({one.text.name for one in checked if one.servers} - {""})
            if servers or findings:
                click.echo(summary(findings, servers, files))
    return exit_code(findings, strict=strict)


def _emit(value: dict[str, Any]) -> None:
    """Print a JSON document in which escapes stand for what a terminal would obey."""
    raw = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    click.echo(_OBEYED.sub(lambda match: f"\\u{ord(match.group()):04x}", raw))


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """1 where a finding costs the exit code, else 0."""
    return 1 if any(costs(finding, strict=strict) for finding in findings) else 0


def costs(finding: Finding, *, strict: bool) -> bool:
    """Whether a finding costs the exit code: an error, and lost capacity where that is asked for."""
    return finding.severity == "error" or (strict and finding.severity == "capacity")


def to_json(checked: Sequence[Checked], findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings and servers as plain data, in the order of the contract."""
    servers = [
        {
            "file": one.text.name or None,
            "line": server.found.line if one.text.name else None,
            "kind": server.found.kind,
            "name": server.found.name,
            "role": server.subject.role,
            "platform": server.subject.platform.id,
        }
        for one in checked
        for server in one.servers
    ]
    return {"findings": [finding.to_json() for finding in findings], "servers": servers}
