"""What the rules look at: a page's fences, inline code, words, links and anchors, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perilune.cookbook.page import Dialect, Page, PageError
from perilune.cookbook.syntax.jsx import Tag
from perilune.cookbook.syntax.nodes import Code, Element, Link, Node, Text, plain_text, walk
from perilune.cookbook.syntax.outline import Block, Container, FlowElement, Leaf, Prose, outline
from perilune.cookbook.syntax.parser import Document, parse
from perilune.cookbook.syntax.pipes import PipeTable
from perilune.cookbook.tables.convert import pipe_tables

_TITLED = frozenset(("Tab", "Accordion", "Card", "Step", "Expandable"))


@dataclass(frozen=True)
class Piece:
    """Some text and the line it stands on, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Fence:
    """A fenced block: `line` is its first line of content; `context` what its headings and titles say."""

    line: int
    info: str
    text: str
    context: str

    @property
    def language(self) -> str:
        """The first word of the info string, in lower case."""
        return (self.info.split() or [""])[0].lower()


@dataclass(frozen=True)
class Sentence:
    """The words of a paragraph, heading or cell, code left out, and the Markdown they come from."""

    start: int
    content: str
    text: str

    def line_of(self, words: str) -> int:
        """Return the line, counted from 1, on which some of the words stand."""
        return _line_of(self.content, words, self.start)


@dataclass
class Source:
    """A page as the rules see it; `problem` says why nothing but its text could be read."""

    page: Page
    problem: PageError | None = None
    tables: list[PipeTable] = field(default_factory=list)
    fences: list[Fence] = field(default_factory=list)
    codes: list[Piece] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    prose: list[Piece] = field(default_factory=list)
    links: list[Piece] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


def read(page: Page) -> Source:
    """Read a page for the rules; a page that does not parse keeps its text alone."""
    source = Source(page)
    try:
        document = parse(page)
        blocks = outline(document, read_all=True)
        source.tables = pipe_tables(document)
        _Reader(document, source).blocks(blocks, [])
        _read_cells(document, source)
    except PageError as error:
        return Source(page, problem=error)
    return source


def _read_cells(document: Document, source: Source) -> None:
    for table in source.tables:
        for number, row in enumerate(table.rows):
            line = table.line_of_row(number)
            for cell in row:
                nodes = document.inline(cell, line, in_table=True)
                collect(source, nodes, cell, line)
            source.prose.append(Piece(line + 1, " | ".join(row)))


def collect(source: Source, nodes: tuple[Node, ...], content: str, start: int) -> None:
    """Sort inline nodes into a source; `start` is the line of `content`, counted from 0."""
    words = "".join(
        "`" if isinstance(node, Code) else node.value for node in walk(nodes) if isinstance(node, Text | Code)
    )
    source.sentences.append(Sentence(start, content, words))
    for node in walk(nodes):
        match node:
            case Code(value):
                source.codes.append(Piece(_line_of(content, value, start), value))
            case Link(href):
                source.links.append(Piece(_line_of(content, href, start), href))
            case Element(tag, children):
                _collect_tag(source, tag, start + content.count("\n", 0, tag.start))
                if tag.name == "code":
                    text = plain_text(children)
                    source.codes.append(Piece(_line_of(content, text, start), text))


def _collect_tag(source: Source, tag: Tag, line: int) -> None:
    for attribute in tag.attributes:
        if attribute.kind != "text":
            continue
        if attribute.name == "id" or (attribute.name == "name" and tag.name == "a"):
            source.anchors.add(attribute.value)
        elif attribute.name == "href":
            source.links.append(Piece(line + 1, attribute.value))
        elif attribute.name == "title" and tag.name in _TITLED:
            source.anchors.add(slug(attribute.value, source.page.dialect))


def _line_of(content: str, text: str, start: int) -> int:
    found = content.find(text.strip()[:24]) if text.strip() else -1
    return start + 1 + (content.count("\n", 0, found) if found > 0 else 0)


@dataclass
class _Reader:
    """Walks the blocks of a page with the titles that stand above them."""

    document: Document
    source: Source
    slugs: dict[str, int] = field(default_factory=dict)

    def blocks(self, blocks: Sequence[Block], above: list[str]) -> None:
        titles: list[tuple[int, str]] = []
        said = ""
        for block in blocks:
            match block:
                case FlowElement(tag=tag, children=children):
                    _collect_tag(self.source, tag, block.start)
                    self.blocks(children, [*above, *(title for _, title in titles), *_title_of(tag)])
                case Container(children=children):
                    self.blocks(children, [*above, *(title for _, title in titles), said])
                case Prose(kind="heading"):
                    said = ""
                    self._heading(block, titles)
                case Prose():
                    said = self._prose(block)
                case Leaf(kind="fence"):
                    context = "\n".join([*above, *(title for _, title in titles), said])
                    self._fence(block, context)

    def _heading(self, block: Prose, titles: list[tuple[int, str]]) -> None:
        text = self._prose(block)
        level = self._level(block)
        while titles and titles[-1][0] >= level:
            titles.pop()
        titles.append((level, text))
        base = slug(text, self.source.page.dialect)
        count = self.slugs[base] = self.slugs.get(base, 0) + 1
        first = 2 if self.source.page.dialect is Dialect.MDX else 1
        self.source.anchors.add(base if count == 1 else f"{base}-{count - 2 + first}")

    def _level(self, block: Prose) -> int:
        line = self.source.page.lines[block.start].lstrip(" \t>")
        marks = len(line) - len(line.lstrip("#"))
        return marks or (1 if "=" in self.source.page.lines[block.end - 1] else 2)

    def _prose(self, block: Prose) -> str:
        nodes = block.nodes or ()
        collect(self.source, nodes, block.content, block.start)
        text = plain_text(nodes)
        self.source.prose.append(Piece(block.start + 1, text))
        return text

    def _fence(self, block: Leaf, context: str) -> None:
        token = next(t for t in self.document.tokens if t.type == "fence" and t.map and t.map[0] == block.start)
        self.source.fences.append(Fence(block.start + 2, token.info.strip(), token.content, context))


def _title_of(tag: Tag) -> Iterator[str]:
    for attribute in tag.attributes:
        if attribute.name == "title" and attribute.kind == "text":
            yield attribute.value


def slug(heading: str, dialect: Dialect) -> str:
    """Return the anchor of a heading: as Mintlify makes it for MDX, as GitHub does for Markdown."""
    text = heading.strip().lower()
    if dialect is Dialect.MARKDOWN:
        return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))
    return re.sub(r"[\W_]+", "-", text).strip("-")
