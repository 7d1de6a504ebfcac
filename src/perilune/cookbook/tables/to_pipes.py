"""A table written as a Markdown pipe table."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from perilune.cookbook.syntax.inline import flanks
from perilune.cookbook.syntax.jsx import Attribute, Tag
from perilune.cookbook.syntax.nodes import Break, Code, Element, Image, Link, Mark, Node, Text, Verbatim
from perilune.cookbook.syntax.uri import normalize
from perilune.cookbook.tables import to_jsx

_DELIMITERS = {"": "---", "left": ":---", "center": ":---:", "right": "---:"}
_MARKS = {"strong": "**", "em": "*", "del": "~~"}
_STRING = re.compile(r'\{\s*("(?:[^"\\]|\\.)*")\s*\}\Z')
_ENTITY = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SPECIAL = re.compile(r"[*_~]+|[`<{\[\]\\|&\xa0\n\r]")
_TARGET_MARKS = re.compile(r"[<>\\|&]")
_TITLE_MARKS = re.compile(r"[\"\\|&]")
_BACKSLASHED = r"\\\g<0>"
_PLAIN_TARGET = re.compile(r"[^\s()<>\\|&]+\Z")


@dataclass(frozen=True)
class _Care:
    """How much to escape: brackets where the page has `definitions`, marks that can only open a span too."""

    definitions: bool
    all_marks: bool
    in_link: bool = False


def row(cells: list[str]) -> str:
    """Return one row of a pipe table."""
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def delimiter_row(aligns: tuple[str, ...]) -> str:
    """Return the row below the header."""
    return "|" + "|".join(_DELIMITERS[align] for align in aligns) + "|"


def candidates(cell: tuple[Node, ...], definitions: bool) -> Iterator[str]:
    """Yield ways to write a cell, the plainest first; not every one is read back as the same cell."""
    for all_marks in (False, True):
        yield _trimmed("".join(_write(node, _Care(definitions, all_marks)) for node in cell))
    yield _trimmed(to_jsx.write_cell(cell, definitions).replace("|", "&#124;"))


def _trimmed(source: str) -> str:
    """Keep the spaces at the edges of a cell from being taken for padding."""
    inner = source.strip(" \t")
    if inner == source:
        return source
    head, tail = source[: len(source) - len(source.lstrip(" \t"))], source[len(source.rstrip(" \t")) :]
    if not inner:
        head, tail = source, ""
    return "".join(f"&#{ord(char)};" for char in head) + inner + "".join(f"&#{ord(char)};" for char in tail)


def simplify(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the same content with Markdown's own nodes where JSX elements say no more than they do."""
    found: list[Node] = []
    for node in nodes:
        simple = _simplify(node)
        last = found[-1] if found else None
        if isinstance(simple, Text) and isinstance(last, Text):
            found[-1] = Text(last.value + simple.value)
        elif simple != Text(""):
            found.append(simple)
    return tuple(found)


def _simplify(node: Node) -> Node:
    match node:
        case Verbatim(source) if match := _STRING.match(source):
            try:
                return Text(str(json.loads(match[1])))
            except ValueError:
                return node
        case Mark(kind, children):
            return Mark(kind, simplify(children))
        case Link(href, title, children):
            return Link(href, title, simplify(children))
        case Element(tag, children):
            return _simplify_element(tag, simplify(children))
    return node


def _simplify_element(tag: Tag, children: tuple[Node, ...]) -> Node:
    given = {attribute.name: _text_value(attribute) for attribute in tag.attributes}
    if None not in given.values():
        match tag.name, children, set(given):
            case ("strong" | "em" | "del") as kind, _, names if not names and children:
                return Mark(kind, children)
            case "code", (), names if not names:
                return Element(tag, children)
            case "code", (Text(value),), names if not names:
                return Code(value)
            case "a", _, names if names in ({"href"}, {"href", "title"}) and _is_normal(given["href"]):
                return Link(given["href"] or "", given.get("title"), children)
            case "img", (), names if {"src", "alt"} <= names <= {"src", "alt", "title"} and _is_normal(given["src"]):
                return Image(given["src"] or "", given.get("title"), given["alt"] or "")
            case "br", (), names if not names:
                return Break()
    return Element(tag, children)


def _is_normal(target: str | None) -> bool:
    return target is not None and normalize(target) == target


def _text_value(attribute: Attribute) -> str | None:
    """Return the value of a quoted attribute, or None where it is no plain text."""
    if attribute.kind != "text":
        return None
    return _ENTITY.sub(lambda match: html.unescape(match.group()), attribute.value)


def _write(node: Node, care: _Care) -> str:
    match node:
        case Text(value):
            return _write_text(value, care)
        case Code(value):
            return _write_code(value)
        case Mark(kind, children):
            return _MARKS[kind] + "".join(_write(child, care) for child in children) + _MARKS[kind]
        case Link(href, title, children):
            if not care.all_marks and (written_out := _written_out(href, title, children)):
                return written_out
            inside = replace(care, in_link=True)
            text = "".join(_write(child, inside) for child in children)
            return f"[{text}]({_target(href, title)})"
        case Image(src, title, alt):
            return f"![{_escape(alt, _Care(True, True))}]({_target(src, title)})"
        case Element(tag, children) if tag.kind == "open":
            inner = "".join(_write(child, care) for child in children)
            return f"{tag.source}{inner}</{tag.name}>"
        case _:
            return to_jsx.write_cell((node,), care.definitions)


def _written_out(href: str, title: str | None, children: tuple[Node, ...]) -> str | None:
    """Return the text of a link that GitHub would make of the text alone."""
    match children:
        case (Text(value),) if title is None and "|" not in value:
            if href in (normalize(value), "http://" + normalize(value), "mailto:" + normalize(value)):
                return value
    return None


def _write_code(value: str) -> str:
    longest = max((len(run) for run in re.findall("`+", value)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if value[:1] in ("`", " ") or value[-1:] in ("`", " ") else ""
    if not value.strip(" "):
        pad = ""
    return fence + pad + value.replace("|", "\\|") + pad + fence


def _target(target: str, title: str | None) -> str:
    written = target if _PLAIN_TARGET.match(target) else "<" + _TARGET_MARKS.sub(_BACKSLASHED, target) + ">"
    return written if title is None else f'{written} "{_TITLE_MARKS.sub(_BACKSLASHED, title)}"'


def _write_text(value: str, care: _Care) -> str:
    if care.in_link:
        return _escape(value, care)
    parts: list[str] = []
    done = 0
    for match in to_jsx.ADDRESS.finditer(value):
        parts.append(_escape(value[done : match.start()], care))
        parts.append(to_jsx.string(match.group()).replace("|", "\\u007c"))
        done = match.end()
    return "".join(parts) + _escape(value[done:], care)


def _escape(value: str, care: _Care) -> str:
    parts: list[str] = []
    done = 0
    for match in _SPECIAL.finditer(value):
        parts.append(value[done : match.start()])
        done = match.end()
        before = value[match.start() - 1 : match.start()] or "*"
        after = value[done : done + 1] or "*"
        parts.append(_escape_mark(match.group(), before, after, value, done, care))
    return "".join(parts) + value[done:]


def _escape_mark(mark: str, before: str, after: str, value: str, end: int, care: _Care) -> str:
    match mark[0]:
        case "*" | "_" | "~":
            opens, closes = flanks(mark[0], before, after)
            if mark == mark[0] * len(mark) and not closes and not (opens and care.all_marks):
                return mark
        case "[":
            if not care.definitions and not care.all_marks and after != "^":
                return mark
        case "]":
            if after not in "([:*":
                return mark
        case "&":
            return "&amp;" if _ENTITY.match(value, end - 1) else mark
        case "\\" if not to_jsx.is_punctuation(after):
            return mark
        case "\xa0":
            return "&nbsp;"
        case "\n" | "\r":
            return to_jsx.string(mark)
    return "".join("\\" + char for char in mark)
