"""The words of a shell command with what the script itself says of its variables; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.sources.found import Word
from perilune.plan.sources.script import Script
from perilune.plan.sources.ways import Choice

if TYPE_CHECKING:
    from tree_sitter import Node

_NAME = re.compile(r"\$\{?(\w+|[@*])\}?")
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_REST = re.compile(r"\$\{[@*]:\s*(\d{1,4})\}")
_DEFAULT = re.compile(r"\$\{(\w+):?-((?:[^${}`\\'\"])*)\}")
MOST_EXPANDED = 1 << 18  # characters, or words of an array
_BLANK = re.compile(r"\S+")
_LITERAL = frozenset({"number", "extglob_pattern", "variable_name"})
_HEREDOC_ESCAPES = "$`\\"
_QUOTED_ESCAPES = '$`"\\'


@dataclass(frozen=True, slots=True)
class Piece:
    """Text and the place of each character; `start` to `end` is what to replace to change all of it.

    `sure` says that the run will find this text, not only where nothing else was given.
    """

    text: str
    at: tuple[int, ...]
    start: int | None = None
    end: int = 0
    sure: bool = True

    def word(self) -> Word:
        """The piece as one word."""
        at = self.at[0] if self.at else self.start
        return Word(self.text, at, self.start, self.end, places=self.at, sure=self.sure)

    def split(self) -> Iterator[Word]:
        """The words of the piece as an unquoted variable gives them; what a command in it prints is not known."""
        if not self.sure and ("$(" in self.text or "${{" in self.text):
            yield self.word()
            return
        for match in _BLANK.finditer(self.text):
            at = self.at[match.start() : match.end()]
            if not at:
                yield Word(match.group(), sure=self.sure)
                continue
            whole = at == tuple(range(at[0], at[0] + len(at)))
            yield Word(match.group(), at[0], at[0] if whole else None, at[-1] + 1, places=at, sure=self.sure)


Value = Piece | tuple[Word, ...]


@dataclass
class Scope:
    """What is known at one point of a script: variables, functions, arguments, and the way that leads there.

    `way` holds what the branches taken so far take for granted; `outer` the same at the start of the loop that
    runs, whose next round may take others. `unlikely` marks a way against what the script itself says, and what
    stands behind its end (`ended`). `background` says that what runs does not keep the next command waiting, `foreign`
    that files nobody read have set variables, `exports_all` that assignments export (`set -a`).
    """

    variables: dict[str, Value] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    arguments: tuple[Word, ...] | None = None
    way: dict[str, Choice] = field(default_factory=dict)
    outer: dict[str, Choice] | None = None
    unlikely: bool = False
    ended: bool = False
    background: bool = False
    foreign: bool = False
    exports_all: bool = False

    def fork(self) -> Scope:
        """A copy that can go another way."""
        return replace(
            self,
            variables=dict(self.variables),
            exported=dict(self.exported),
            functions=dict(self.functions),
            way=dict(self.way),
        )

    def inner(self, names: Iterable[str] = ()) -> Scope:
        """What another shell knows that is started here: the exported variables, and those called `names`."""
        kept = {*self.exported, *names}
        scope = self.fork()
        scope.variables = {name: value for name, value in scope.variables.items() if name in kept}
        scope.functions, scope.arguments = {}, None
        return scope

    def lookup(self, name: str) -> Value | None:
        """What a variable or a positional argument holds, if the script says so."""
        if name.isdigit() and self.arguments is not None and 0 < int(name) <= len(self.arguments):
            word = self.arguments[int(name) - 1]
            return Piece(word.text, word.places, word.start, word.end, word.sure)
        return self.variables.get(name)


def placeless(value: Value) -> Value:
    """A value that stands in another file: nothing of it can be changed here."""
    if isinstance(value, Piece):
        return Piece(value.text, (), sure=value.sure)
    return tuple(Word(word.text, sure=word.sure) for word in value)


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
    if scope.exports_all:
        scope.exported[name] = None
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
        return Piece(old.text + new.text, old.at + new.at, sure=old.sure and new.sure)
    return new


def text_of(script: Script, node: Node, scope: Scope) -> Piece:
    """What one argument expands to, without the splitting of a variable into words."""
    return _piece(script, node, scope)


def filled(script: Script, node: Node, scope: Scope) -> Piece:
    """The lines of a here-document with the variables in them."""
    parts, index = [], node.start_byte
    for child in node.named_children:
        if child.type == "heredoc_content":
            continue
        parts.append(_unescaped(script, index, child.start_byte, _HEREDOC_ESCAPES, 0, 0))
        parts.append(_piece(script, child, scope))
        index = child.end_byte
    parts.append(_unescaped(script, index, node.end_byte, _HEREDOC_ESCAPES, 0, 0))
    return _joined(parts, 0, 0)


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
        if (rest := _REST.fullmatch(written)) is not None and scope.arguments is not None:
            yield from scope.arguments[max(int(rest[1]) - 1, 0) :]
            return
        name = listed[1] if listed else written[1:].strip("{}")
        if name in ("@", "*"):
            if scope.arguments is not None:
                yield from scope.arguments
            return
        value = scope.lookup(name)
        if isinstance(value, tuple):
            yield from value if listed or script.text.is_zsh else value[:1]
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
    written = _verbatim(script, node.start_byte, node.end_byte, start, end)
    return written if node.type in _LITERAL else replace(written, sure=False)


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
    text, at = "".join(p.text for p in parts), tuple(place for p in parts for place in p.at)
    return Piece(text, at, start, end, all(p.sure for p in parts))


def _expansion(script: Script, node: Node, scope: Scope) -> Piece:
    written = script.of(node)
    start, end = script.offset(node.start_byte), script.offset(node.end_byte - 1) + 1
    name = _NAME.fullmatch(written) or _ARRAY.fullmatch(written) or _DEFAULT.fullmatch(written)
    value = scope.lookup(name[1]) if name else None
    if isinstance(value, tuple):
        if not value or len(value) > 1 or value[0].at is None:
            text = " ".join(word.text for word in value)
            return Piece(text, (start,) * len(text), sure=all(word.sure for word in value))
        return Piece(value[0].text, value[0].places, value[0].start, value[0].end, value[0].sure)
    if value is not None:
        return value
    default = _DEFAULT.fullmatch(written)
    if default:
        first = node.start_byte + default.start(2)
        place = script.offset(first)
        return replace(_verbatim(script, first, first + len(default[2]), place, place + len(default[2])), sure=False)
    return replace(_verbatim(script, node.start_byte, node.end_byte, start, end), sure=False)
