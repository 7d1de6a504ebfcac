"""Findings as a person reads them: severity, what will happen, the fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from perilune.cli.output import WIDTH
from perilune.plan.rules import Finding

STYLES = {"error": "bold red", "rewrite": "yellow", "capacity": "magenta", "advice": "cyan"}
INDENT = " " * 10


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Each finding as a wrapped paragraph, the fix on a line of its own."""
    for finding in findings:
        text = f"[{finding.pool}] {finding.message}" if finding.pool else finding.message
        lines = textwrap.wrap(text, WIDTH - len(INDENT)) or [""]
        head = Text(f"{finding.severity:<10}", style=STYLES[finding.severity])
        console.print(head.append(lines[0], style="default"))
        for line in lines[1:]:
            console.print(Text(INDENT + line))
        for number, line in enumerate(textwrap.wrap(finding.fix, WIDTH - len(INDENT) - 4)):
            console.print(Text(INDENT + ("fix " if number == 0 else "    ") + line, style="dim"))
