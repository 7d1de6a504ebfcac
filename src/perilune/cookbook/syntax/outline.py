"""The JSX elements of an MDX page as a tree, with the blocks between their tags.

Building the tree holds a page against the rules of MDX: a tag is closed in the same container,
paragraph or span that opens it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from markdown_it.token import Token

from perilune.cookbook.page import PageError
from perilune.cookbook.syntax.jsx import Braces, Tag
from perilune.cookbook.syntax.nodes import Node
from perilune.cookbook.syntax.parser import Document


@dataclass
class FlowElement:
    """A JSX element whose tags stand between blocks; lines count from 0, `end` is the line after."""

    tag: Tag
    start: int
    end: int
    children: list[Block] = field(default_factory=list)


@dataclass
class Container:
    """A block quote, list or list item."""

    kind: str
    start: int
    children: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Prose:
    """A paragraph or heading; `nodes` is None where its text holds no JSX and was not read."""

    kind: str
    start: int
    end: int
    content: str
    nodes: tuple[Node, ...] | None


@dataclass(frozen=True)
class Leaf:
    """Any other block: code, a rule, a table, statements, an expression."""

    kind: str
    start: int
    source: str = ""


Block: TypeAlias = FlowElement | Container | Prose | Leaf


def outline(document: Document, *, read_all: bool = False) -> list[Block]:
    """Return the blocks of an MDX page; raises PageError where tags do not nest.

    `read_all` also reads the prose that holds no JSX.
    """
    root = Container("page", 0)
    stack: list[FlowElement | Container] = [root]
    for token, inline in _with_inline(document.tokens):
        line = token.map[0] if token.map else 0
        if token.type == "mdx_flow":
            for part in token.meta["parts"]:
                _place(stack, part, line, token)
        elif token.type in ("paragraph_open", "heading_open") and inline is not None:
            nodes = None
            if read_all or "<" in inline.content or "{" in inline.content:
                nodes = document.inline(inline.content, line)
            end = token.map[1] if token.map else line
            stack[-1].children.append(Prose(token.type.removesuffix("_open"), line, end, inline.content, nodes))
        elif token.nesting == 1:
            container = Container(token.type.removesuffix("_open"), line)
            stack[-1].children.append(container)
            stack.append(container)
        elif token.nesting == -1:
            _no_open_tag(stack)
            stack.pop()
        else:
            stack[-1].children.append(Leaf(token.type, line, token.content))
    _no_open_tag(stack)
    return root.children


def _with_inline(tokens: list[Token]) -> Iterator[tuple[Token, Token | None]]:
    number = 0
    while number < len(tokens):
        token = tokens[number]
        if token.type in ("paragraph_open", "heading_open"):
            yield token, tokens[number + 1]
            number += 3
        else:
            yield token, None
            number += 1


def _place(stack: list[FlowElement | Container], part: Tag | Braces, line: int, token: Token) -> None:
    first = line + token.content.count("\n", 0, part.start)
    last = line + token.content.count("\n", 0, part.end)
    if isinstance(part, Braces):
        stack[-1].children.append(Leaf("expression", first, part.source))
    elif part.kind == "self":
        stack[-1].children.append(FlowElement(part, first, last + 1))
    elif part.kind == "open":
        element = FlowElement(part, first, last + 1)
        stack[-1].children.append(element)
        stack.append(element)
    else:
        top = stack[-1]
        if isinstance(top, Container):
            raise PageError(f"the closing tag {part} closes no tag that was opened in this {top.kind}", first + 1)
        if top.tag.name != part.name:
            raise PageError(
                f"the closing tag {part} stands where {top.tag}, opened on line {top.start + 1}, is still open",
                first + 1,
            )
        top.end = last + 1
        stack.pop()


def _no_open_tag(stack: list[FlowElement | Container]) -> None:
    top = stack[-1]
    if isinstance(top, FlowElement):
        raise PageError(f"the tag {top.tag} is never closed", top.start + 1)
