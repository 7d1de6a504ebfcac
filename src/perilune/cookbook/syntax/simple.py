"""Most cells hold only words and inline code: these are read without the full parser."""

from __future__ import annotations

import re

from perilune.cookbook.syntax.nodes import Code, Node, Text

_WORDS = r"[^\n&*<\[\]\\_`{}~@]"
_CODE = r"(?<!`)`(?!`)([^`\\\n]+)`(?!`)"
_SIMPLE = re.compile(rf"(?:{_WORDS}|(?<!`)`(?!`)[^`\\\n]+`(?!`))*\Z")
_SPLIT = re.compile(_CODE)
_ADDRESS = re.compile(r"://|www\.", re.IGNORECASE)


def simple_cell(content: str) -> tuple[Node, ...] | None:
    """Return a cell's nodes, or None where it holds more than words and code between single backticks."""
    if not _SIMPLE.match(content) or _ADDRESS.search(content):
        return None
    found: list[Node] = []
    for number, piece in enumerate(_SPLIT.split(content)):
        if number % 2:
            padded = piece[0] == piece[-1] == " " and piece.strip(" ")
            found.append(Code(piece[1:-1] if padded else piece))
        elif piece:
            found.append(Text(piece))
    return tuple(found)
