"""The instructions of a Dockerfile, with the lines that belong to each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text

_START = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+")
_ESCAPE = re.compile(r"\A(?:#[ \t]*[a-z]+[ \t]*=[^\n]*\n)*?#[ \t]*escape[ \t]*=[ \t]*`", re.IGNORECASE)
_MARK = re.compile(r"<<-?([\"']?)([A-Za-z_]\w*)\1")
_TAKES_DOCUMENTS = frozenset({"RUN", "COPY", "ADD"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its arguments as a script without the ends of its lines, and its here-documents."""

    name: str
    script: Script
    start: int
    documents: tuple[Script, ...] = ()


def instructions(text: Text) -> Iterator[Instruction]:
    """Every instruction, in order.

    The builder joins lines before a shell sees them: a backslash may have blanks behind it, and comments and
    empty lines in between do not end the instruction.
    """
    source, position = text.text, 0
    escape = "`" if _ESCAPE.match(source) else "\\"
    ends = re.compile(rf"{re.escape(escape)}[ \t]*\r?$")
    while position < len(source):
        line_end = _line_end(source, position)
        line = source[position:line_end]
        if not line.strip() or line.lstrip().startswith("#"):
            position = line_end + 1
            continue
        start, kept = position, list[int]()
        position = line_end + 1
        while (turn := ends.search(line)) is not None:
            kept += range(line_end - len(line), line_end - len(line) + turn.start())
            line = ""
            while position < len(source):
                line_end = _line_end(source, position)
                line = source[position:line_end]
                position = line_end + 1
                if line.strip() and not line.lstrip().startswith("#"):
                    break
                line = ""
            if not line:
                break
        kept += range(line_end - len(line), line_end)
        joined = "".join(source[index] for index in kept)
        match = _START.match(joined)
        if match is None:
            continue
        name, arguments = match[1].upper(), joined[match.end() :]
        documents = []
        for _, mark in _MARK.findall(arguments) if name in _TAKES_DOCUMENTS else ():
            end = re.compile(rf"^\t*{mark}\r?$", re.MULTILINE).search(source, position)
            body = range(position, end.start() if end else len(source))
            documents.append(Script(text, source[body.start : body.stop], body))
            position = _line_end(source, end.end() if end else len(source)) + 1
        yield Instruction(name, Script(text, arguments, tuple(kept[match.end() :])), start, tuple(documents))


def _line_end(source: str, position: int) -> int:
    end = source.find("\n", position)
    return len(source) if end < 0 else end
