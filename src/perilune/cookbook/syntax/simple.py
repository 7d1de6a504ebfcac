"""Most cells hold only words, inline code, bold words and links: these are read without the full parser.

What is taken here is what the full parser would find; anything less plain is left to it.
"""

from __future__ import annotations

import re

from perilune.cookbook.syntax.nodes import Code, Link, Mark, Node, Text
from perilune.cookbook.syntax.uri import normalize

_WORDS = r"[^\n&*<\[\]\\_`{}~@]+"
_PIECE = re.compile(
    rf"(?P<words>{_WORDS})"
    r"|(?<!`)`(?!`)(?P<code>[^`\\\n]+)`(?!`)"
    r"|(?<!\S)\*\*(?P<strong>[A-Za-z0-9](?:[^\n&*<\[\]\\_`{}~@]*[A-Za-z0-9])?)\*\*(?=[\s.,;:)]|\Z)"
    rf"|(?<!!)\[(?P<label>{_WORDS})\]\((?P<target>[A-Za-z0-9/#.?=%:+_-]+)\)"
)
_ADDRESS = re.compile(r"://|www\.", re.IGNORECASE)


def simple_cell(content: str) -> tuple[Node, ...] | None:
    """Return a cell's nodes, or None where the full parser is needed."""
    found: list[Node] = []
    pos = 0
    while pos < len(content):
        match = _PIECE.match(content, pos)
        if match is None:
            return None
        piece = match[match.lastgroup or 0]
        match match.lastgroup:
            case "code":
                padded = piece[0] == piece[-1] == " " and piece.strip(" ")
                found.append(Code(piece[1:-1] if padded else piece))
            case "words" if not _ADDRESS.search(piece):
                found.append(Text(piece))
            case "strong" if not _ADDRESS.search(piece):
                found.append(Mark("strong", (Text(piece),)))
            case "target":
                found.append(Link(normalize(piece), None, (Text(match["label"]),)))
            case _:
                return None
        pos = match.end()
    return tuple(found)
