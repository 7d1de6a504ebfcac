"""Reading a JSX table of a page: rows, alignment, and the inline content of its cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perilune.cookbook.page import PageError
from perilune.cookbook.syntax.jsx import Attribute, Tag
from perilune.cookbook.syntax.nodes import Element, Node, Text, Verbatim
from perilune.cookbook.syntax.outline import Block, Container, FlowElement, Leaf, Prose
from perilune.cookbook.syntax.pipes import Align
from perilune.cookbook.tables.model import Table, block_in

_ALIGN = re.compile(r"""\btextAlign\s*:\s*["'](left|center|right)["']""")
_COMMENT = re.compile(r"\{\s*(?:/\*(?:[^*]|\*(?!/))*\*/\s*)*\}\Z")
_KNOWN = frozenset(("style", "align", "width", "border", "cellPadding", "cellSpacing", "scope"))


@dataclass(frozen=True)
class JsxTable:
    """Where a JSX table stands: its lines, counted from 0, and its element."""

    start: int
    end: int
    element: _Item


@dataclass(frozen=True)
class _Item:
    """An element of a table with the line it begins on, wherever MDX keeps it."""

    tag: Tag
    line: int
    children: Sequence[Block | Node]


def find_tables(blocks: Sequence[Block]) -> Iterator[JsxTable]:
    """Yield the JSX tables of a page that stand on lines of their own, in order."""
    for block in blocks:
        match block:
            case FlowElement(tag=Tag(name="table")):
                yield JsxTable(block.start, block.end, _Item(block.tag, block.start, block.children))
            case FlowElement(children=children) | Container(children=children):
                yield from find_tables(children)
            case Prose(nodes=nodes) if nodes is not None:
                elements = [node for node in nodes if isinstance(node, Element)]
                if not any(element.tag.name == "table" for element in elements):
                    continue
                rest = [node for node in nodes if node not in elements and not _is_blank(node)]
                if rest or len(elements) > 1:
                    raise PageError("a table shares its lines with other content", block.start + 1)
                item = _Item(elements[0].tag, block.start, elements[0].children)
                yield JsxTable(block.start, block.end, item)


def read(table: JsxTable) -> Table:
    """Return the table's content; raises PageError for what a pipe table cannot hold."""
    rows = list(_rows(table.element))
    if not rows or any(cell.tag.name != "th" for cell in rows[0][1]):
        raise PageError("the table has no header row, and a pipe table must have one", table.start + 1)
    width = len(rows[0][1])
    cells: list[tuple[tuple[Node, ...], ...]] = []
    aligns: list[list[Align]] = []
    for number, (line, row) in enumerate(rows):
        if number and any(cell.tag.name != "td" for cell in row):
            raise PageError("a row below the header holds a header cell", line + 1)
        if len(row) != width or not width:
            raise PageError(f"the row has {len(row)} cells and the header {width}", line + 1)
        aligns.append([_align(cell) for cell in row])
        cells.append(tuple(_content(cell) for cell in row))
    return Table(_column_aligns(aligns, table.start), tuple(cells))


def _rows(table: _Item) -> Iterator[tuple[int, list[_Item]]]:
    for part in _elements(table):
        if part.tag.name in ("thead", "tbody"):
            for row in _elements(part):
                yield _row(row)
        elif part.tag.name == "tr":
            yield _row(part)
        elif part.tag.name == "colgroup":
            list(_elements(part))
        else:
            raise PageError(f"a pipe table has no place for {part.tag}", part.line + 1)


def _row(row: _Item) -> tuple[int, list[_Item]]:
    if row.tag.name != "tr":
        raise PageError(f"{row.tag} stands where a row should", row.line + 1)
    cells = list(_elements(row))
    for cell in cells:
        if cell.tag.name not in ("td", "th"):
            raise PageError(f"{cell.tag} stands where a cell should", cell.line + 1)
    return row.line, cells


def _elements(parent: _Item) -> Iterator[_Item]:
    """Yield what a structural element holds; comments are left out, all else is refused."""
    _check_attributes(parent)
    for child in parent.children:
        match child:
            case FlowElement():
                yield _Item(child.tag, child.start, child.children)
            case Element():
                yield _Item(child.tag, parent.line, child.children)
            case Prose(nodes=nodes) if nodes is not None:
                for node in nodes:
                    if isinstance(node, Element):
                        line = child.start + child.content.count("\n", 0, node.tag.start)
                        yield _Item(node.tag, line, node.children)
                    elif not _is_blank(node):
                        raise PageError(f"text stands between the parts of {parent.tag}", child.start + 1)
            case _ if _is_blank(child):
                pass
            case _:
                raise PageError(f"{parent.tag} holds more than rows and cells", parent.line + 1)


def _check_attributes(item: _Item) -> None:
    for attribute in item.tag.attributes:
        if attribute.name in ("colSpan", "rowSpan") and attribute.value.strip() == "1":
            continue
        if attribute.name not in _KNOWN:
            name = attribute.name or "{...}"
            raise PageError(f"{item.tag} has `{name}`, which a pipe table cannot hold", item.line + 1)


def _is_blank(node: Block | Node) -> bool:
    match node:
        case Text(value):
            return not value.strip()
        case Verbatim(source) | Leaf(kind="expression", source=source):
            return _COMMENT.match(source) is not None
    return False


def _align(cell: _Item) -> Align:
    _check_attributes(cell)
    for attribute in cell.tag.attributes:
        if found := _align_of(attribute):
            return found
    return ""


def _align_of(attribute: Attribute) -> Align:
    value = attribute.value
    if attribute.name == "style" and (match := _ALIGN.search(value)):
        value = match[1]
    for align in ("left", "center", "right"):
        if value == align:
            return align
    return ""


def _column_aligns(rows: list[list[Align]], line: int) -> tuple[Align, ...]:
    found: list[Align] = []
    for number, head in enumerate(rows[0]):
        body = {row[number] for row in rows[1:]}
        if len(body) > 1 or (body and head not in ("", "left") and head not in body):
            raise PageError(f"the cells of column {number + 1} are aligned differently", line + 1)
        found.append(body.pop() if body else "" if head == "left" else head)
    return tuple(found)


def _content(cell: _Item) -> tuple[Node, ...]:
    nodes = _flatten(cell.children, cell)
    if name := block_in(nodes):
        raise PageError(f"a cell holds the block element <{name}>", cell.line + 1)
    return nodes


def _flatten(children: Sequence[Block | Node], cell: _Item) -> tuple[Node, ...]:
    """Return what a cell holds as inline content; one paragraph is taken as its text."""
    found: list[Node] = []
    for child in children:
        match child:
            case FlowElement(tag=tag, children=inner):
                found.append(Element(tag, _flatten(inner, cell)))
            case Prose(kind="paragraph", nodes=nodes) if nodes is not None:
                loose = any(not isinstance(node, Element | Verbatim) and not _is_blank(node) for node in nodes)
                if loose and len(children) > 1:
                    raise PageError("a cell holds several paragraphs", child.start + 1)
                found += nodes if loose else [node for node in nodes if not isinstance(node, Text)]
            case Leaf(kind="expression", source=source):
                found.append(Verbatim(source))
            case Prose() | Container() | Leaf():
                raise PageError(f"a cell holds a block ({child.kind.replace('_', ' ')})", cell.line + 1)
            case _:
                found.append(child)
    return tuple(found)
