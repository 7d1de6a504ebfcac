"""The commands in a page's fences: which start a server, and what each is written like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perilune.cookbook.lint.source import Fence, Source
from perilune.errors import PeriluneError
from perilune.plan.server import Server

SHELLS = frozenset(("", "bash", "sh", "shell", "console", "zsh", "text"))
_SERVES = re.compile(r"\bsglang serve\b|\bsglang\.launch_server\b")
_NOTE = re.compile(r"(?:\A|\s)#.*\Z")


@dataclass(frozen=True)
class Command:
    """One command of a fence, its continuation lines joined, and the line it begins on, counted from 1."""

    line: int
    text: str
    fence: Fence

    @property
    def serves(self) -> bool:
        """Whether it starts an SGLang server."""
        return _SERVES.search(self.text) is not None

    @property
    def server(self) -> Server | None:
        """The command as a value; None where it is no single command of a server."""
        try:
            found = Server.parse(self.text)
        except PeriluneError:
            return None
        return found if found.program else None


def commands(source: Source) -> Iterator[Command]:
    """Yield the commands of a page's shell fences; a `$ ` prompt is left out."""
    for fence in source.fences:
        if fence.language not in SHELLS:
            continue
        lines = fence.text.split("\n")
        start = 0
        while start < len(lines):
            end = start
            while end + 1 < len(lines) and lines[end].rstrip().endswith("\\"):
                end += 1
            text = "\n".join(_NOTE.sub("", line) for line in lines[start : end + 1]).strip()
            if text:
                yield Command(fence.line + start, text.removeprefix("$ "), fence)
            start = end + 1
