"""Converting the tables of one page, or saying why not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from perilune.cookbook.page import Dialect, Edit, Page, PageError, line_end
from perilune.cookbook.syntax.nodes import Node, plain_text
from perilune.cookbook.syntax.outline import Block, outline
from perilune.cookbook.syntax.parser import Document, parse
from perilune.cookbook.syntax.pipes import PipeTable, split_row
from perilune.cookbook.tables import from_jsx, to_jsx, to_pipes
from perilune.cookbook.tables.from_jsx import JsxTable
from perilune.cookbook.tables.model import Table, block_in

Target = Literal["jsx", "markdown"]

_MARKS_OF_CONTAINERS = re.compile(r"[ \t>]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+[ \t>]*)*")
_JSX_TABLE = re.compile(r"\s*<table style=\{\{")
_NOT_QUOTE = re.compile(r"[^>\s]")


@dataclass(frozen=True)
class Note:
    """Something to tell about a line, counted from 1."""

    line: int
    message: str


@dataclass(frozen=True)
class Converted:
    """A page after conversion; with `refusals` the page is the one that came in."""

    page: Page
    tables: int = 0
    cells: int = 0
    refusals: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def status(self) -> Literal["converted", "unchanged", "refused"]:
        if self.refusals:
            return "refused"
        return "converted" if self.tables else "unchanged"


def convert(page: Page, target: Target) -> Converted:
    """Turn a page's pipe tables into JSX tables, or its JSX tables into pipe tables.

    All tables or none: a page that does not parse, or with a table that cannot be carried over
    faithfully, comes back as it was, with the reasons.
    """
    try:
        document = parse(page)
        if page.dialect is Dialect.MDX:
            blocks = outline(document, read_all=target == "markdown" and "<table" in page.text)
        else:
            blocks = _html_tables(document) if target == "markdown" else []
        return _pipes_to_jsx(document) if target == "jsx" else _jsx_to_pipes(document, blocks)
    except PageError as error:
        return Converted(page, refusals=(Note(error.line, error.message),))


def _pipes_to_jsx(document: Document) -> Converted:
    page = document.page
    edits: list[Edit] = []
    refusals: list[Note] = []
    notes: list[Note] = []
    cells = 0
    pipes = pipe_tables(document)
    for pipe in pipes:
        try:
            table = read_pipes(document, pipe)
        except PageError as error:
            refusals.append(Note(error.line, error.message))
            continue
        cells += table.cells
        notes += [
            Note(line + 1, f"the cell {text!r} stands beyond the last column and was not shown")
            for line, text in pipe.cut
        ]
        edits.append(_edit(page, pipe, to_jsx.write(table, definitions=document.has_definitions)))
    if refusals:
        return Converted(page, len(pipes), refusals=tuple(refusals))
    return Converted(page.apply(edits), len(pipes), cells, notes=tuple(notes))


def read_pipes(document: Document, pipe: PipeTable) -> Table:
    """Parse the cells of a pipe table; raises PageError for what a table cell cannot carry over."""
    for line, text in pipe.cut:
        document.inline(text, line, in_table=True)
    rows = []
    for number, row in enumerate(pipe.rows):
        line = pipe.line_of_row(number)
        cells = tuple(document.inline(text, line, in_table=True) for text in row)
        for cell in cells:
            if name := block_in(cell):
                raise PageError(f"a cell holds the block element <{name}>", line + 1)
        rows.append(cells)
    return Table(pipe.aligns, tuple(rows))


def _edit(page: Page, pipe: PipeTable, lines: list[str]) -> Edit:
    """Put `lines` where a pipe table stands, with its prefix (indentation, `>`) and its line ends."""
    first, rest = (page.lines[pipe.start + number][: pipe.indents[number]] for number in (0, 1))
    if not first.strip(" \t>"):
        rest = first
    return edit(page, pipe.start, pipe.end, lines, first, rest)


def _jsx_to_pipes(document: Document, blocks: list[Block]) -> Converted:
    page = document.page
    edits: list[Edit] = []
    refusals: list[Note] = []
    cells = 0
    found = list(from_jsx.find_tables(blocks))
    for jsx in found:
        try:
            first = _own_lines(page, jsx)
            table = from_jsx.read(jsx)
            lines = write_pipes(document, table, jsx.start)
        except PageError as error:
            refusals.append(Note(error.line, error.message))
            continue
        cells += table.cells
        edits.append(edit(page, jsx.start, jsx.end, lines, first, _NOT_QUOTE.sub(" ", first)))
    if refusals:
        return Converted(page, len(found), refusals=tuple(refusals))
    return Converted(_set_apart(page, edits), len(found), cells)


def _set_apart(page: Page, edits: list[Edit]) -> Page:
    """Make the edits, with a blank line after a table where the text that follows would be read as a row."""
    changed = page.apply(edits)
    ends = {table.start: table.end for table in pipe_tables(parse(changed))}
    shift = 0
    apart: list[Edit] = []
    for made in sorted(edits, key=lambda made: made.start):
        start = made.start + shift
        shift += len(made.lines) - (made.end - made.start)
        if ends.get(start) != start + len(made.lines):
            prefix = made.lines[-1].partition("|")[0].rstrip(" \t")
            made = Edit(made.start, made.end, (*made.lines, prefix + line_end(made.lines[-1])))
        apart.append(made)
    return page.apply(apart)


def pipe_tables(document: Document) -> list[PipeTable]:
    """Return a page's pipe tables, in order."""
    return [token.meta["table"] for token in document.tokens if token.type == "pipe_table"]


def _own_lines(page: Page, jsx: JsxTable) -> str:
    """Return what stands before a table on its first line; raises PageError for other content there."""
    before, _, _ = page.lines[jsx.start].partition("<table")
    _, _, after = page.lines[jsx.end - 1].rpartition("</table>")
    if _MARKS_OF_CONTAINERS.fullmatch(before) is None or after.strip():
        raise PageError("a table shares its lines with other content", jsx.start + 1)
    return before


def write_pipes(document: Document, table: Table, line: int) -> list[str]:
    """Return the rows of a pipe table whose every cell is read back as it was; raises PageError."""
    rows = [[_write_cell(document, cell, line) for cell in row] for row in table.rows]
    head, *body = [to_pipes.row(row) for row in rows]
    return [head, to_pipes.delimiter_row(table.aligns), *body]


def _write_cell(document: Document, cell: tuple[Node, ...], line: int) -> str:
    wanted = to_pipes.simplify(cell)
    for source in to_pipes.candidates(wanted, document.has_definitions):
        if split_row(f"| {source} |") != [source]:
            continue
        try:
            found = document.inline(source, line, in_table=True)
        except PageError:
            continue
        if to_pipes.simplify(found) == wanted:
            return source
    text = plain_text(cell)
    raise PageError(f"the cell {text[:60]!r} cannot be written in a pipe table", line + 1)


def _html_tables(document: Document) -> list[Block]:
    """Return the JSX tables that a plain Markdown page holds as HTML, with the page's line numbers."""
    found: list[Block] = []
    for token in document.tokens:
        if token.type == "html_block" and token.map and _JSX_TABLE.match(token.content):
            found += outline(parse(Page("\n" * token.map[0] + token.content)), read_all=True)
    return found


def edit(page: Page, start: int, end: int, lines: list[str], first: str, rest: str) -> Edit:
    """Put `lines` in place of the page's lines `start` to `end`; `first` and `rest` are their prefixes."""
    ending, last = line_end(page.lines[start]), line_end(page.lines[end - 1])
    prefixed = [(rest if number else first) + line for number, line in enumerate(lines)]
    return Edit(start, end, (*(line + ending for line in prefixed[:-1]), prefixed[-1] + last))
