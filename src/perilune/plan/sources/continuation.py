"""Lines that a backslash joins, as Bash joins them: before anything is taken for a word."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PIECES = re.compile(
    r"\\(?P<join>\r?\n)"
    r"|\\(?P<blank>[ \t]+)(?=\r?\n|\Z)"
    r"|\\.\#?"
    r"|\$'(?:[^'\\]|\\.)*'"
    r"|'[^']*'"
    r"|(?P<double>\")"
    r"|<<<"
    r"|<<(?P<tabs>-?)[ \t]*(?P<quote>[\\'\"]?)(?P<mark>[\w.-]+)"
    r"|(?:(?<=[\s;&|()])|^)\#[^\n]*"
    r"|(?P<line>\n)",
    re.DOTALL,
)
_IN_DOUBLE = re.compile(r"\\(?P<join>\r?\n)|\\.|(?P<double>\")", re.DOTALL)
_JOIN = re.compile(r"(?<!\\)\\\r?\n")
_BLANKS = " \t\r\n"


def joins(src: str) -> tuple[list[tuple[int, int]], list[int]]:
    """What Bash takes out to join lines, as spans, and the backslashes with only blanks behind them on their line.

    A backslash in single quotes, in a comment or in a quoted here-document joins nothing.
    """
    if not re.search(r"\\[ \t]*\r?(?:\n|\Z)", src):
        return [], []
    spans: list[tuple[int, int]] = []
    blanks: list[int] = []
    waiting: list[tuple[str, bool, bool]] = []
    double, at = False, 0
    while match := (_IN_DOUBLE if double else _PIECES).search(src, at):
        at = match.end()
        if match["join"]:
            spans.append(match.span())
        elif match["double"]:
            double = not double
        elif double:
            continue
        elif match["blank"]:
            blanks.append(match.start())
        elif match["mark"]:
            waiting.append((match["mark"], bool(match["quote"]), bool(match["tabs"])))
        elif match["line"]:
            for mark, quoted, tabs in waiting:
                end = _document_end(src, at, mark, tabs)
                if not quoted:
                    spans += [found.span() for found in _JOIN.finditer(src, at, end)]
                at = end
            waiting = []
    return spans, blanks


def _document_end(src: str, at: int, mark: str, tabs: bool) -> int:
    """Just behind the line that ends a here-document."""
    indent = r"[ \t]*" if tabs else ""
    found = re.compile(rf"^{indent}{re.escape(mark)}\r?$", re.MULTILINE).search(src, at)
    return found.end() if found else len(src)


def glued(src: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """The backslashes that join two words into one, the second of them a flag."""
    return [
        start
        for start, end in spans
        if start and src[start - 1] not in _BLANKS and src.startswith("-", end) and src[start - 1] != "\\"
    ]
