"""What a test of a script asks, so that ways through it which exclude each other can be told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perilune.plan.sources.script import Script
from perilune.plan.sources.ways import Choice, Values
from perilune.plan.sources.words import Piece, Scope, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_EQUAL = {"=": True, "==": True, "-eq": True, "!=": False, "-ne": False}
_EMPTY = {"-z": True, "-n": False}
_PLAIN = re.compile(r"[\w./:@%+,-]*")  # no pattern
_YES = frozenset({"yes"})


@dataclass(frozen=True, slots=True)
class Test:
    """Whether `subject` is one of `values` (`holds`) or none of them.

    `literal` is the text of the subject where the script itself says it.
    """

    subject: str
    values: Values
    holds: bool = True
    literal: str | None = None

    def taken(self, scope: Scope, outcome: bool) -> Scope | None:
        """The way on when the test ends so; None where what led here excludes it."""
        among = outcome == self.holds
        known = scope.way.get(self.subject, Choice())
        choice = known.narrowed(self.values, among)
        if choice is None:
            return None
        way = scope.fork()
        way.way[self.subject] = choice
        if self.literal is not None and self.subject not in scope.way:
            way.unlikely = scope.unlikely or (self.literal in self.values) != among
        return way


def test_of(script: Script, nodes: Sequence[Node], scope: Scope) -> Test:
    """The test that commands make; one that cannot be taken apart is its own subject."""
    if len(nodes) == 1 and (found := _comparison(script, nodes[0], scope)) is not None:
        return found
    return Test(" ".join(_filled(script, node, scope) for node in nodes), _YES)


def tells(node: Node) -> bool:
    """Whether a command does nothing but test."""
    return node.type == "test_command" or (node.type == "negated_command" and tells(node.named_children[0]))


def pattern_test(script: Script, subject: Node, patterns: Sequence[Node], scope: Scope) -> Test | None:
    """The test of one arm of a `case`; None where it takes everything."""
    texts = [text_of(script, node, scope) for node in patterns]
    values = frozenset(piece.text for piece in texts)
    if all(piece.sure and _PLAIN.fullmatch(piece.text) for piece in texts):
        return _test(script, subject, values, True, scope)
    if values == {"*"}:
        return None
    return Test(f"{_filled(script, subject, scope)} in {'|'.join(sorted(values))}", _YES)


def _comparison(script: Script, node: Node, scope: Scope) -> Test | None:
    if node.type == "negated_command" and node.named_children:
        inner = _comparison(script, node.named_children[0], scope)
        return inner and Test(inner.subject, inner.values, not inner.holds, inner.literal)
    if node.type == "test_command" and node.named_child_count == 1:
        return _compared(script, node.named_children[0].children, scope)
    if node.type == "command" and script.of(node).startswith("test "):
        return _compared(script, node.children[1:], scope)
    return None


def _compared(script: Script, parts: Sequence[Node], scope: Scope) -> Test | None:
    words = [script.of(part) for part in parts]
    if len(parts) == 3 and words[1] in _EQUAL:
        value = text_of(script, parts[2], scope)
        if value.sure and _PLAIN.fullmatch(value.text):
            return _test(script, parts[0], frozenset({value.text}), _EQUAL[words[1]], scope)
    if len(parts) == 2 and words[0] in _EMPTY:
        return _test(script, parts[1], frozenset({""}), _EMPTY[words[0]], scope)
    return None


def _test(script: Script, subject: Node, values: Values, holds: bool, scope: Scope) -> Test:
    piece = text_of(script, subject, scope)
    named = _named(script.of(subject), piece)
    return Test(named, values, holds, piece.text if piece.sure else None)


def _named(written: str, piece: Piece) -> str:
    """A subject by what it is: the same text again is the same subject, however it is written."""
    if not piece.sure and "$" in piece.text:
        return piece.text
    return f"{written.strip(chr(34))}={piece.text}"


def _filled(script: Script, node: Node, scope: Scope) -> str:
    """A node as it is written, its variables in where they are known."""
    text, at = "", node.start_byte
    for child in _expansions(node):
        text += script.src[at : child.start_byte] + _named(script.of(child), text_of(script, child, scope))
        at = child.end_byte
    return text + script.src[at : node.end_byte]


def _expansions(node: Node) -> list[Node]:
    found, stack = [], [node]
    while stack:
        one = stack.pop()
        if one.type in ("simple_expansion", "expansion"):
            found.append(one)
        else:
            stack.extend(reversed(one.named_children))
    return found
