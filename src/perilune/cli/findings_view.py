"""Findings as a person reads them: severity, what will happen, the fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from perilune.cli.check_view import COLOURS
from perilune.cli.output import WIDTH
from perilune.plan.rules import Finding

INDENT = " " * 10


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Each finding as a wrapped paragraph, the fix on a line of its own."""
    for finding in findings:
        text = f"[{finding.pool}] {finding.message}" if finding.pool else finding.message
        lines = textwrap.wrap(text, WIDTH - len(INDENT)) or [""]
        bold = "bold " if finding.severity == "error" else ""
        head = Text(f"{finding.severity:<10}", style=bold + COLOURS[finding.severity])
        console.print(head.append(lines[0], style="default"))
        for line in lines[1:]:
            console.print(Text(INDENT + line))
        for number, line in enumerate(textwrap.wrap(finding.fix, WIDTH - len(INDENT) - 4)):
            console.print(Text(INDENT + ("fix " if number == 0 else "    ") + line, style="dim"))
