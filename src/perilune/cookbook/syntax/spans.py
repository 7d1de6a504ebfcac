"""From inline tokens to a tree: emphasis and strikethrough are paired, JSX tags are nested.

Pairing follows the CommonMark rules for delimiter runs; strikethrough takes one or two tildes, as
GitHub does, and is paired as a step of its own, before or after emphasis, whichever comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from markdown_it.token import Token

from perilune.cookbook.syntax.jsx import MdxError, Tag
from perilune.cookbook.syntax.nodes import Break, Code, Element, Image, Link, Mark, Node, Text, Verbatim
from perilune.cookbook.syntax.uri import normalize

MAX_RUNS = 2_000

_LINE_END = re.compile(r"[ \t]*\n[ \t]*")

_Kind: TypeAlias = Literal["attention", "strike"]
_INSIDE: tuple[_Kind, ...] = ("attention", "strike")


@dataclass(slots=True)
class Run:
    """A run of `*`, `_` or `~` that may open or close a span; `size` shrinks as it is used."""

    marker: str
    size: int
    opens: bool
    closes: bool

    @property
    def kind(self) -> _Kind:
        return "strike" if self.marker == "~" else "attention"


_Item: TypeAlias = Node | Run | Tag


def build(tokens: Sequence[Token], *, in_table: bool) -> tuple[Node, ...]:
    """Return the tree of a text's inline tokens; raises MdxError where JSX tags do not nest."""
    runs = [token.meta["run"] for token in tokens if token.type == "run"]
    if len(runs) > MAX_RUNS:
        raise MdxError(f"more than {MAX_RUNS:,} runs of emphasis marks in one text", 0)
    order = tuple(dict.fromkeys(run.kind for run in runs))
    return _nest(_pair(_items(iter(tokens), in_table), order))


def _items(tokens: Iterator[Token], in_table: bool) -> list[_Item]:
    found: list[_Item] = []
    for token in tokens:
        match token.type:
            case "text" | "text_special":
                found.append(Text(token.content))
            case "softbreak":
                found.append(Text(" "))
            case "hardbreak":
                found.append(Break())
            case "code_inline":
                found.append(Code(_unescape_pipes(token.content) if in_table else token.content))
            case "run":
                found.append(token.meta["run"])
            case "tag":
                found.append(token.meta["tag"])
            case "verbatim":
                found.append(Verbatim(token.content))
            case "literal_link":
                found.append(Link(normalize(token.meta["href"]), None, (Text(token.content),)))
            case "image":
                found.append(Image(normalize(_attr(token, "src") or ""), _attr(token, "title"), _alt(token, in_table)))
            case "link_open":
                children = _nest(_pair(_items(tokens, in_table), _INSIDE))
                found.append(Link(normalize(_attr(token, "href") or ""), _attr(token, "title"), children))
            case "link_close":
                return found
            case other:
                raise MdxError(f"`{other}` cannot stand in a table cell", 0)
    return found


def _unescape_pipes(code: str) -> str:
    out: list[str] = []
    pos = 0
    while (slash := code.find("\\", pos)) >= 0 and slash + 1 < len(code):
        after = code[slash + 1]
        out.append(code[pos:slash] + ("|" if after == "|" else code[slash : slash + 2] if after == "\\" else "\\"))
        pos = slash + (2 if after in "\\|" else 1)
    return "".join(out) + code[pos:]


def _attr(token: Token, name: str) -> str | None:
    value = token.attrGet(name)
    return None if value is None else str(value)


def _alt(token: Token, in_table: bool) -> str:
    return alt_text(build(token.children or (), in_table=in_table))


def alt_text(nodes: tuple[Node, ...]) -> str:
    """Return what a renderer puts into `alt` for the description of an image."""
    parts: list[str] = []
    for node in nodes:
        match node:
            case Text(value) | Code(value):
                parts.append(value)
            case Image(alt=alt):
                parts.append(alt)
            case Verbatim(source) if source.startswith("{"):
                parts.append(source[1:-1])
            case Mark(children=children) | Link(children=children) | Element(children=children):
                parts.append(alt_text(children))
    return "".join(parts)


def _pair(items: list[_Item], order: tuple[_Kind, ...]) -> list[_Item]:
    for kind in order:
        items = _pair_strikes(items) if kind == "strike" else _pair_attention(items)
    return items


def _pair_attention(items: list[_Item]) -> list[_Item]:
    index = 0
    while index < len(items):
        closer = items[index]
        if isinstance(closer, Run) and closer.kind == "attention" and closer.closes:
            found = _opener(items, index, closer)
            if found is not None:
                index = _wrap(items, *found, index, closer)
        index += 1
    return _rest_is_text(items, "attention")


def _opener(items: list[_Item], end: int, closer: Run) -> tuple[int, Run] | None:
    for index in range(end - 1, -1, -1):
        run = items[index]
        if isinstance(run, Run) and run.opens and run.marker == closer.marker:
            both_ways = run.closes or closer.opens
            if not (both_ways and closer.size % 3 and not (run.size + closer.size) % 3):
                return index, run
    return None


def _wrap(items: list[_Item], start: int, opener: Run, end: int, closer: Run) -> int:
    """Join `items[start]` to `items[end]` into a mark; return the index after which to go on."""
    used = 2 if opener.size > 1 and closer.size > 1 else 1
    inside = _nest(_pair(items[start + 1 : end], _INSIDE))
    opener.size -= used
    closer.size -= used
    joined: list[_Item] = [opener] if opener.size else []
    joined.append(Mark("strong" if used == 2 else "em", inside))
    if closer.size:
        joined.append(closer)
    items[start : end + 1] = joined
    return start + len(joined) - (2 if closer.size else 1)


def _pair_strikes(items: list[_Item]) -> list[_Item]:
    index = 0
    while index < len(items):
        closer = items[index]
        if isinstance(closer, Run) and closer.kind == "strike" and closer.closes:
            for start in range(index - 1, -1, -1):
                run = items[start]
                if isinstance(run, Run) and run.kind == "strike" and run.opens and run.size == closer.size:
                    inside = _nest(_pair(items[start + 1 : index], _INSIDE))
                    items[start : index + 1] = [Mark("del", inside)]
                    index = start
                    break
        index += 1
    return _rest_is_text(items, "strike")


def _rest_is_text(items: list[_Item], kind: _Kind) -> list[_Item]:
    return [Text(item.marker * item.size) if isinstance(item, Run) and item.kind == kind else item for item in items]


def _nest(items: list[_Item]) -> tuple[Node, ...]:
    """Put what stands between a tag and its closing tag into an element, and join neighbouring texts."""
    open_tags: list[Tag] = []
    levels: list[list[Node]] = [[]]
    for item in items:
        if isinstance(item, Run):  # a run left over by the pairing is text
            _append(levels[-1], Text(item.marker * item.size))
        elif not isinstance(item, Tag):
            _append(levels[-1], item)
        elif item.kind == "self":
            levels[-1].append(Element(item, ()))
        elif item.kind == "open":
            open_tags.append(item)
            levels.append([])
        elif not open_tags or open_tags[-1].name != item.name:
            wanted = f", where the closing tag of {open_tags[-1]} should come" if open_tags else ""
            raise MdxError(f"the closing tag {item} closes no tag that was opened in this text{wanted}", item.start)
        else:
            children = tuple(levels.pop())
            levels[-1].append(Element(open_tags.pop(), children))
    if open_tags:
        tag = open_tags[-1]
        raise MdxError(f"the tag {tag} is not closed in the text that opens it", tag.start)
    return tuple(_as_rendered(node) for node in levels[0])


def _as_rendered(node: Node) -> Node:
    """Drop the spaces around a line end that a character reference wrote, as renderers do."""
    return Text(_LINE_END.sub("\n", node.value)) if isinstance(node, Text) and "\n" in node.value else node


def _append(nodes: list[Node], node: Node) -> None:
    last = nodes[-1] if nodes else None
    if isinstance(node, Text) and isinstance(last, Text):
        nodes[-1] = Text(last.value + node.value)
    elif not (isinstance(node, Text) and not node.value):
        nodes.append(node)
