"""GFM pipe tables as a block rule, by the grammar that GitHub and remark-gfm share.

markdown-it's own table rule splits `\\\\|` and accepts rows otherwise than they do, hence this one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from markdown_it.rules_block import StateBlock

from perilune.cookbook.page import PageError
from perilune.cookbook.syntax.esm import starts_esm

Align = Literal["", "left", "center", "right"]

_DELIMITER_ROW = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\Z")
_PIECE = re.compile(r"(?:[^\\|]|\\[\\|]|\\)+|\|")


@dataclass(frozen=True)
class PipeTable:
    """A table as written: `rows[0]` is the header, cells are trimmed Markdown text.

    Lines count from 0; `indents` are the columns where the first two lines' own text begins, after
    indentation and the marks of containers; `cut` holds the cells that stand beyond the header's columns, which no
    renderer shows, with their line.
    """

    start: int
    end: int
    aligns: tuple[Align, ...]
    rows: tuple[tuple[str, ...], ...]
    cut: tuple[tuple[int, str], ...]
    indents: tuple[int, int] = (0, 0)

    def line_of_row(self, row: int) -> int:
        """Return the line of a row, counted from 0; the delimiter row is the second line."""
        return self.start if row == 0 else self.start + row + 1


def table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: a header row, a delimiter row with as many cells, and body rows."""
    header = start + 1
    if header >= end or not may_be_delimiter(state, header) or state.sCount[header] < state.blkIndent:
        return False
    if state.is_code_block(start) or state.is_code_block(header):
        return False
    delimiter = _line(state, header)
    if not _DELIMITER_ROW.match(delimiter) or delimiter.startswith(("- ", "-\t")):
        return False
    aligns = _aligns(delimiter)
    head = split_row(_line(state, start))
    if len(head) != len(aligns) or ("|" not in delimiter and ":" not in delimiter):
        return False
    if state.sCount[start] < state.blkIndent:
        raise PageError("the header row of a table stands outside the container of its other rows", start + 1)
    if silent:
        return True
    rows, cut, line = _body(state, header + 1, end, len(aligns))
    token = state.push("pipe_table", "table", 0)
    token.map = [start, line]
    indents = (_column(state, start), _column(state, header))
    token.meta["table"] = PipeTable(start, line, aligns, (tuple(head), *rows), tuple(cut), indents)
    state.line = line
    return True


def interrupting_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: the table before which a paragraph has ended, whatever else its header row looks like."""
    return state.env.get("table_after_text") == start and table(state, start, end, silent)


def may_be_delimiter(state: StateBlock, line: int) -> bool:
    """Tell whether a line begins as the row below a table's header does."""
    return state.src.startswith(("|", "-", ":"), state.bMarks[line] + state.tShift[line])


def _body(
    state: StateBlock, line: int, end: int, columns: int
) -> tuple[list[tuple[str, ...]], list[tuple[int, str]], int]:
    before, state.parentType = state.parentType, "table"
    terminators = state.md.block.ruler.getRules("blockquote")
    rows: list[tuple[str, ...]] = []
    cut: list[tuple[int, str]] = []
    while line < end and state.sCount[line] >= state.blkIndent and not state.isEmpty(line):
        if state.is_code_block(line):
            break
        if not state.src.startswith("|", state.bMarks[line] + state.tShift[line]):
            if any(rule(state, line, end, True) for rule in terminators):
                break
            if before == "root" and starts_esm(state, line):
                break
        cells = split_row(_line(state, line))
        cut.extend((line, cell) for cell in cells[columns:] if cell)
        rows.append(tuple((cells + [""] * columns)[:columns]))
        line += 1
    state.parentType = before
    return rows, cut, line


def split_row(row: str) -> list[str]:
    """Split a row at its pipes; `\\\\|` and `\\\\\\\\` hold together, a pipe at either edge opens no cell."""
    pieces = _PIECE.findall(row.strip(" \t"))
    cells: list[str] = []
    current: str | None = None
    for number, piece in enumerate(pieces):
        if piece != "|":
            current = piece.strip(" \t")
            continue
        if number > 0:
            cells.append(current or "")
        current = None
    if current is not None:
        cells.append(current)
    return cells


def _aligns(delimiter: str) -> tuple[Align, ...]:
    found: list[Align] = []
    for cell in split_row(delimiter):
        left, right = cell.startswith(":"), cell.endswith(":")
        found.append("center" if left and right else "left" if left else "right" if right else "")
    return tuple(found)


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _column(state: StateBlock, line: int) -> int:
    begin = state.bMarks[line] + state.tShift[line]
    return begin - (state.src.rfind("\n", 0, begin) + 1)
