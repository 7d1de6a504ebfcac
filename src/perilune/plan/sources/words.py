"""The words of a shell command with what the script itself says of its variables; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.sources.found import Word
from perilune.plan.sources.script import Script

if TYPE_CHECKING:
    from tree_sitter import Node

_NAME = re.compile(r"\$\{?(\w+|[@*])\}?")
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_DEFAULT = re.compile(r"\$\{(\w+):?-((?:[^${}`\\'\"])*)\}")
MOST_EXPANDED = 1 << 18  # characters, or words of an array
_BLANK = re.compile(r"\S+")
_QUOTED_ESCAPES = '$`"\\'


@dataclass(frozen=True, slots=True)
class Piece:
    """Text and the place of each character; `start` to `end` is what to replace to change all of it."""

    text: str
    at: tuple[int, ...]
    start: int | None = None
    end: int = 0

    def word(self) -> Word:
        """The piece as one word."""
        return Word(self.text, self.at[0] if self.at else self.start, self.start, self.end, places=self.at)

    def split(self) -> Iterator[Word]:
        """The words of the piece as an unquoted variable gives them."""
        for match in _BLANK.finditer(self.text):
            at = self.at[match.start() : match.end()]
            if not at:
                yield Word(match.group())
                continue
            whole = at == tuple(range(at[0], at[0] + len(at)))
            yield Word(match.group(), at[0], at[0] if whole else None, at[-1] + 1, places=at)


Value = Piece | tuple[Word, ...]


@dataclass
class Scope:
    """What is known at one point of a script: variables, functions, arguments, and branches already taken."""

    variables: dict[str, Value] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    arguments: tuple[Word, ...] | None = None
    taken: dict[str, int] = field(default_factory=dict)

    def fork(self) -> Scope:
        """A copy that can go another way."""
        return replace(
            self,
            variables=dict(self.variables),
            exported=dict(self.exported),
            functions=dict(self.functions),
            taken=dict(self.taken),
        )

    def lookup(self, name: str) -> Value | None:
        """What a variable or a positional argument holds, if the script says so."""
        if name.isdigit() and self.arguments is not None and 0 < int(name) <= len(self.arguments):
            word = self.arguments[int(name) - 1]
            return Piece(word.text, word.places, word.start, word.end)
        return self.variables.get(name)


def words_of(script: Script, nodes: Sequence[Node], scope: Scope) -> list[Word]:
    """The words that arguments expand to. What only the run can tell stays as it is written.

    Raises UnusableInput where variables within variables grow past any command line.
    """
    found: list[Word] = []
    size = 0
    for node in nodes:
        for word in _words(script, node, scope):
            size += len(word.text) + 1
            _hold(size, script, node)
            found.append(word)
    return found


def value_of(script: Script, node: Node | None, scope: Scope) -> Value:
    """What an assignment stores."""
    if node is None:
        return Piece("", ())
    if node.type == "array":
        return tuple(words_of(script, [n for n in node.named_children if n.type != "comment"], scope))
    return _piece(script, node, scope)


def store(script: Script, node: Node, scope: Scope) -> str:
    """Do an assignment, and say what it is to."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    name = script.of(target) if target else ""
    new = value_of(script, value, scope)
    _hold(len(new.text) if isinstance(new, Piece) else len(new), script, node)
    if any(child.type == "+=" for child in node.children):
        new = _added(scope.variables.get(name), new)
    scope.variables[name] = new
    return name


def _hold(size: int, script: Script, node: Node) -> None:
    if size > MOST_EXPANDED:
        raise UnusableInput(
            f"Its variables grow to more than {MOST_EXPANDED >> 10} KiB here.",
            where=script.text.at(script.offset(node.start_byte)),
        )


def _added(old: Value | None, new: Value) -> Value:
    if isinstance(new, tuple):
        return (*(old if isinstance(old, tuple) else ()), *new)
    if isinstance(old, Piece):
        return Piece(old.text + new.text, old.at + new.at)
    return new


def single(value: Value | None) -> Word | None:
    """The word of a variable that is no array."""
    return value.word() if isinstance(value, Piece) else None


def _words(script: Script, node: Node, scope: Scope) -> Iterator[Word]:
    bare = node.named_children[0] if node.type == "string" and node.named_child_count == 1 else node
    if node.type == "string" and (bare.start_byte, bare.end_byte) != (node.start_byte + 1, node.end_byte - 1):
        bare = node
    if bare.type in ("simple_expansion", "expansion"):
        written = script.of(bare)
        listed = _ARRAY.fullmatch(written)
        name = listed[1] if listed else written[1:].strip("{}")
        if name in ("@", "*"):
            if scope.arguments is not None:
                yield from scope.arguments
            return
        value = scope.lookup(name)
        if isinstance(value, tuple):
            yield from value if listed else value[:1]
            return
        if node is bare:
            yield from _piece(script, node, scope).split()
            return
    yield _piece(script, node, scope).word()


def _piece(script: Script, node: Node, scope: Scope) -> Piece:
    start, end = script.offset(node.start_byte), script.offset(node.end_byte - 1) + 1
    match node.type:
        case "raw_string":
            return _verbatim(script, node.start_byte + 1, node.end_byte - 1, start, end)
        case "simple_expansion" | "expansion":
            return _expansion(script, node, scope)
        case "string":
            return _string(script, node, scope, start, end)
        case "concatenation":
            parts = [_piece(script, child, scope) for child in node.children]
            return _joined(parts, start, end)
        case "word":
            return _unescaped(script, node.start_byte, node.end_byte, "", start, end)
    return _verbatim(script, node.start_byte, node.end_byte, start, end)


def _verbatim(script: Script, first: int, last: int, start: int, end: int) -> Piece:
    return Piece(script.src[first:last], tuple(map(script.offset, range(first, last))), start, end)


def _unescaped(script: Script, first: int, last: int, special: str, start: int, end: int) -> Piece:
    """Text without backslashes; inside double quotes only those before `special` characters go."""
    text, at, index = [], [], first
    while index < last:
        char = script.src[index]
        if char == "\\" and index + 1 < last:
            following = script.src[index + 1]
            if following == "\n" or script.src.startswith("\r\n", index + 1):
                index += 2 if following == "\n" else 3
                continue
            if not special or following in special:
                index, char = index + 1, following
        text.append(char)
        at.append(script.offset(index))
        index += 1
    return Piece("".join(text), tuple(at), start, end)


def _string(script: Script, node: Node, scope: Scope, start: int, end: int) -> Piece:
    parts, index = [], node.start_byte + 1
    for child in node.named_children:
        if child.type == "string_content":
            continue
        parts.append(_unescaped(script, index, child.start_byte, _QUOTED_ESCAPES, 0, 0))
        parts.append(_piece(script, child, scope))
        index = child.end_byte
    parts.append(_unescaped(script, index, node.end_byte - 1, _QUOTED_ESCAPES, 0, 0))
    filled = [part for part in parts if part.text]
    if len(filled) == 1 and filled[0].start and len(parts) > 1:
        return filled[0]  # "$NAME" alone: to change it is to change the variable
    return _joined(parts, start, end)


def _joined(parts: Sequence[Piece], start: int, end: int) -> Piece:
    return Piece("".join(p.text for p in parts), tuple(place for p in parts for place in p.at), start, end)


def _expansion(script: Script, node: Node, scope: Scope) -> Piece:
    written = script.of(node)
    start, end = script.offset(node.start_byte), script.offset(node.end_byte - 1) + 1
    name = _NAME.fullmatch(written) or _ARRAY.fullmatch(written) or _DEFAULT.fullmatch(written)
    value = scope.lookup(name[1]) if name else None
    if isinstance(value, tuple):
        if not value or len(value) > 1 or value[0].at is None:
            text = " ".join(word.text for word in value)
            return Piece(text, (start,) * len(text))
        return Piece(value[0].text, value[0].places, value[0].start, value[0].end)
    if value is not None:
        return value
    default = _DEFAULT.fullmatch(written)
    if default:
        first = node.start_byte + default.start(2)
        place = script.offset(first)
        return _verbatim(script, first, first + len(default[2]), place, place + len(default[2]))
    return _verbatim(script, node.start_byte, node.end_byte, start, end)
