"""Findings as a person reads them: severity, what will happen, the fix, and the fix as options of `plan`."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from perilune.cli.check_view import COLOURS
from perilune.cli.output import WIDTH
from perilune.plan.commandline.occurrences import find_option
from perilune.plan.rules import Edit, Finding

INDENT = " " * 10
TRIED = ("error", "capacity")


def print_findings(console: Console, findings: Iterable[Finding], *, options: bool = False) -> None:
    """Each finding as a wrapped paragraph, the fix on a line of its own; with `options` also as one gives it to plan.

    Rewrites and advice say what to write in one word or two, and need no options.
    """
    for finding in findings:
        text = f"[{finding.pool}] {finding.message}" if finding.pool else finding.message
        lines = textwrap.wrap(text, WIDTH - len(INDENT), break_on_hyphens=False) or [""]
        bold = "bold " if finding.severity == "error" else ""
        head = Text(f"{finding.severity:<10}", style=bold + COLOURS[finding.severity])
        console.print(head.append(lines[0], style="default"))
        for line in lines[1:]:
            console.print(Text(INDENT + line))
        _labelled(console, "fix ", finding.fix)
        if options and finding.severity in TRIED:
            _labelled(console, "try ", as_options(finding.edits, finding.pool))


def as_options(edits: Iterable[Edit], pool: str = "") -> str:
    """Edits as the options of `perilune plan` that make them, of one pool or of all; empty where none do."""
    words = [word for edit in edits for word in _option(edit, f"{pool}:" if pool else "")]
    return "" if "" in words else shlex.join(words)


def _option(edit: Edit, scope: str) -> Iterator[str]:
    name = edit.name.removeprefix("--")
    match edit.action:
        case "set" if edit.value is None:
            yield from ("--set", f"{scope}{name}")
        case "set":
            option, values = find_option(edit.name), shlex.split(edit.value or "")
            several = option is not None and option.nargs in ("+", "*")
            yield from ("--set", f"{scope}{name}={edit.value if several or len(values) != 1 else values[0]}")
        case "unset" | "unset-env":
            yield from ("--unset", f"{scope}{name}")
        case "env":
            yield from ("--env", f"{scope}{name}={edit.value}")
        case _:
            yield ""  # a spelling that no composed command has


def _labelled(console: Console, label: str, text: str) -> None:
    lines = textwrap.wrap(text, WIDTH - len(INDENT) - len(label), break_on_hyphens=False)
    for number, line in enumerate(lines):
        console.print(Text(INDENT + (" " * len(label) if number else label) + line, style="dim"))
