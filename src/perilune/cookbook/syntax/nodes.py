"""The inline content of a table cell as a tree of small values, the same for both kinds of table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from perilune.cookbook.syntax.jsx import Tag


@dataclass(frozen=True, slots=True)
class Text:
    """Characters, with entities and escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True)
class Code:
    """Inline code."""

    value: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Text that is strong, emphasised or struck out."""

    kind: Literal["strong", "em", "del"]
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A link; `href` is percent-encoded as a renderer writes it."""

    href: str
    title: str | None
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An image; `src` is percent-encoded as a renderer writes it."""

    src: str
    title: str | None
    alt: str


@dataclass(frozen=True, slots=True)
class Break:
    """A line break that Markdown wrote."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A JavaScript expression with its braces, or a footnote reference: carried over as written."""

    source: str


@dataclass(frozen=True, slots=True)
class Element:
    """A JSX element; `tag` is its opening or self-closing tag."""

    tag: Tag
    children: tuple[Node, ...]


Node: TypeAlias = Text | Code | Mark | Link | Image | Break | Verbatim | Element


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Yield every node of a tree, parents first."""
    for node in nodes:
        yield node
        if isinstance(node, Mark | Link | Element):
            yield from walk(node.children)


def plain_text(nodes: tuple[Node, ...]) -> str:
    """Return the characters that a reader sees."""
    return "".join(node.value for node in walk(nodes) if isinstance(node, Text | Code))
