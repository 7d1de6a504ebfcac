"""A table between its two spellings."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.cookbook.syntax.nodes import Element, Node, walk
from perilune.cookbook.syntax.pipes import Align

BLOCK_ELEMENTS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "caption", "center", "col", "colgroup", "dd"),
        *("details", "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "iframe", "legend", "li", "main"),
        *("menu", "nav", "ol", "p", "pre", "script", "section", "style", "summary", "table", "tbody", "td"),
        *("tfoot", "th", "thead", "tr", "ul"),
    )
)


@dataclass(frozen=True)
class Table:
    """Alignments of the columns and rows of cells; `rows[0]` is the header and all rows are as wide."""

    aligns: tuple[Align, ...]
    rows: tuple[tuple[tuple[Node, ...], ...], ...]

    @property
    def cells(self) -> int:
        """Number of cells, the header's included."""
        return len(self.rows) * len(self.aligns)


def block_in(cell: tuple[Node, ...]) -> str | None:
    """Return the name of a block element that stands in a cell, or None."""
    for node in walk(cell):
        if isinstance(node, Element) and node.tag.name.lower() in BLOCK_ELEMENTS:
            return node.tag.name
    return None
