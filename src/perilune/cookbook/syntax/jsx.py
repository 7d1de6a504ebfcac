"""One JSX tag or expression in a page, by the grammar of MDX."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from perilune.cookbook.syntax.js import expression_end

_SPACE = r"[\s\ufeff]"
_NAME_TEXT = r"(?:[^\W\d]|\$)[\w$\u200c\u200d-]*"
_OPENING = re.compile(
    rf"<(?P<close>/{_SPACE}*)?(?P<name>{_NAME_TEXT}(?:(?:{_SPACE}*\.{_SPACE}*{_NAME_TEXT})+|{_SPACE}*:{_SPACE}*{_NAME_TEXT})?)?"
)
_SPACES = re.compile(rf"{_SPACE}*")
_ATTRIBUTE = re.compile(rf"(?P<name>{_NAME_TEXT}(?:{_SPACE}*:{_SPACE}*{_NAME_TEXT})?)(?P<value>{_SPACE}*={_SPACE}*)?")
_AFTER_NAME = re.compile(rf"{_SPACE}|[/>{{]|\Z")


class MdxError(Exception):
    """Text that MDX does not accept, at an offset of the text that was read."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class UnfinishedError(MdxError):
    """A tag or an expression that is still open where the text ends."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute; `value` is the text between the quotes or braces, as written."""

    name: str
    kind: Literal["flag", "text", "expression", "spread"]
    value: str = ""


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag: `<name ...>`, `</name>` or `<name ... />`; a fragment has an empty name."""

    name: str
    kind: Literal["open", "close", "self"]
    attributes: tuple[Attribute, ...] = ()
    source: str = ""
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"<{'/' if self.kind == 'close' else ''}{self.name}>"


@dataclass(frozen=True, slots=True)
class Braces:
    """An expression with its braces, as written."""

    source: str
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


def scan_tag(text: str, start: int, limit: int) -> Tag | None:
    """Read the tag at the `<` at `start`; None where MDX takes the `<` as text (whitespace follows).

    Raises MdxError where MDX would not compile, UnfinishedError where the text ends inside the tag.
    """
    if start + 1 >= limit:
        raise UnfinishedError("the text ends after `<`, which would open a tag", start)
    if text[start + 1] in " \t\n":
        return None
    match = _OPENING.match(text, start, limit)
    if match is None:
        return None
    pos = match.end()
    closing = match["close"] is not None
    name = re.sub(rf"{_SPACE}+", "", match["name"] or "")
    if not name:
        if text.startswith(">", pos):
            return Tag("", "close" if closing else "open", (), text[start : pos + 1], start, pos + 1)
        raise _unexpected(text, pos, limit, "a tag name", comment=not closing and text.startswith("!", pos))
    if not _AFTER_NAME.match(text, pos, limit):
        raise _unexpected(text, pos, limit, "a space, an attribute or the end of the tag")
    attributes, pos, self_closing = _attributes(text, pos, limit)
    if closing and (attributes or self_closing):
        raise MdxError(f"the closing tag </{name}> may hold nothing but its name", start)
    kind: Literal["open", "close", "self"] = "close" if closing else "self" if self_closing else "open"
    return Tag(name, kind, tuple(attributes), text[start:pos], start, pos)


def _attributes(text: str, pos: int, limit: int) -> tuple[list[Attribute], int, bool]:
    found: list[Attribute] = []
    while True:
        pos = _skip(text, pos, limit)
        if text.startswith(">", pos) and pos < limit:
            return found, pos + 1, False
        if text.startswith("/", pos) and pos < limit:
            pos = _skip(text, pos + 1, limit)
            if pos < limit and text[pos] == ">":
                return found, pos + 1, True
            raise _unexpected(text, pos, limit, "`>` to end the tag")
        if text.startswith("{", pos) and pos < limit:
            end = _close(text, pos, limit, spread=True)
            found.append(Attribute("", "spread", text[pos + 1 : end]))
            pos = end + 1
            continue
        match = _ATTRIBUTE.match(text, pos, limit)
        if match is None:
            raise _unexpected(text, pos, limit, "an attribute or the end of the tag")
        name = re.sub(rf"{_SPACE}+", "", match["name"])
        pos = match.end()
        if match["value"] is None:
            if not _AFTER_NAME.match(text, pos, limit):
                raise _unexpected(text, pos, limit, "`=`, an attribute or the end of the tag")
            found.append(Attribute(name, "flag"))
            continue
        attribute, pos = _value(name, text, pos, limit)
        found.append(attribute)


def _value(name: str, text: str, pos: int, limit: int) -> tuple[Attribute, int]:
    mark = text[pos] if pos < limit else ""
    if mark in ('"', "'") and mark:
        end = text.find(mark, pos + 1, limit)
        if end < 0:
            raise UnfinishedError(f"the value of `{name}` is never closed with {mark}", pos)
        return Attribute(name, "text", text[pos + 1 : end]), end + 1
    if mark == "{":
        end = _close(text, pos, limit, empty=False)
        return Attribute(name, "expression", text[pos + 1 : end]), end + 1
    raise _unexpected(text, pos, limit, f"a quoted or braced value for `{name}`")


def scan_braces(text: str, start: int, limit: int) -> Braces:
    """Read the expression at the `{` at `start`; raises UnfinishedError where no `}` ends valid JavaScript."""
    end = _close(text, start, limit) + 1
    return Braces(text[start:end], start, end)


def _close(text: str, start: int, limit: int, *, spread: bool = False, empty: bool = True) -> int:
    end = expression_end(text, start + 1, limit, spread=spread, empty=empty)
    if end is None:
        what = "{...object}" if spread else "a JavaScript expression"
        raise UnfinishedError(f"`{{` opens {what} here, and no `}}` ends a valid one", start)
    return end


def _skip(text: str, pos: int, limit: int) -> int:
    match = _SPACES.match(text, pos, limit)
    return match.end() if match else pos


def _unexpected(text: str, pos: int, limit: int, expected: str, comment: bool = False) -> MdxError:
    if pos >= limit:
        return UnfinishedError(f"the text ends inside a tag, where {expected} should come", pos)
    hint = "; a comment is written {/* ... */}" if comment else ""
    return MdxError(f"unexpected `{text[pos]}` in a tag, where {expected} should come{hint}", pos)


def scan_flow(text: str) -> tuple[list[Tag | Braces], int] | None:
    """Read a line that is nothing but tags and expressions, which may run over several lines.

    Returns what it holds and the offset where its last line ends, or None where other text follows.
    """
    limit = len(text)
    parts: list[Tag | Braces] = []
    pos = 0
    while True:
        part = scan_tag(text, pos, limit) if text[pos] == "<" else scan_braces(text, pos, limit)
        if part is None:
            return None
        parts.append(part)
        pos = part.end
        while pos < limit and text[pos] in " \t":
            pos += 1
        if pos >= limit or text[pos] == "\n":
            return parts, pos
        if text[pos] == "<" or (text[pos] == "{" and isinstance(part, Tag)):
            continue
        return None
