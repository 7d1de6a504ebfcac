"""Findings with their places, 80 columns wide, without a library that takes long to load."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Sequence

import click

from perilune.cli.output import WIDTH
from perilune.plan.display import printable
from perilune.plan.rules import Finding
from perilune.plan.rules.finding import ORDER

COLOURS = {"error": "red", "rewrite": "yellow", "capacity": "magenta", "advice": "cyan"}
NAMES = {"error": ("error", "errors"), "rewrite": ("rewrite", "rewrites")}


def print_placed(findings: Sequence[Finding], *, err: bool = False) -> None:
    """Each finding: where, how bad and which rule; then what will happen; then the fix."""
    colour = False if "NO_COLOR" in os.environ else None
    for finding in findings:
        place = f"{printable(finding.where.file)}:{finding.where.line} " if finding.where else ""
        severity = click.style(finding.severity, fg=COLOURS[finding.severity], bold=finding.severity == "error")
        click.echo(f"{place}{severity} {finding.id}", err=err, color=colour)
        message = f"[{finding.pool}] {finding.message}" if finding.pool else finding.message
        for line in wrapped(message, "    "):
            click.echo(line, err=err)
        for line in wrapped(f"fix: {finding.fix}", "    ") if finding.fix else ():
            click.echo(click.style(line, dim=True), err=err, color=colour)


def summary(findings: Sequence[Finding], servers: int, files: int) -> str:
    """What was looked at and what was found, in one line."""
    counts = Counter(finding.severity for finding in findings)
    parts = []
    for severity in ORDER:
        if number := counts[severity]:
            one, many = NAMES.get(severity, (severity, severity))
            parts.append(f"{number} {one if number == 1 else many}")
    looked = f"{servers} server{'s' * (servers != 1)}"
    looked += f" in {files} file{'s' * (files != 1)}" if files else ""
    return f"{looked}: {', '.join(parts) if parts else 'nothing to say'}."


def wrapped(text: str, indent: str) -> list[str]:
    """Text that a terminal shows as it stands, in lines of the common width."""
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=True,
    )
