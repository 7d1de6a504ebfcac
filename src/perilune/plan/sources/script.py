"""Shell text through the Bash grammar, with every character's place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.sources.continuation import glued, joins
from perilune.plan.sources.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_CHARACTERS = 256 * 1024
MOST_NESTING = 400  # the parser itself gives up, badly, at some tens of thousands
_NESTING = re.compile(r"(?P<open>[(\[{]|\b(?:if|case|do)\b)|[)\]}]|\b(?:fi|esac|done)\b")
_PLACEHOLDER = re.compile(r"(?<!<)<[A-Za-z](?:[\w .:/-]*[\w.:/-])?>|\{\{[^{}\n]*\}\}")
_BACKTICK_COMMENT = re.compile(r"(?<!\S)`[ \t]*#[^`\n]*`(?!\S)")
_ESCAPED_BLANK = re.compile(r"(?<!\\)((?:\\\\)*)\\[ \t]")


@dataclass(frozen=True)
class Script:
    """Shell text `src`; `at[i]` is the place of its character i in `text`."""

    text: Text
    src: str
    at: Sequence[int]

    def offset(self, index: int) -> int:
        """The place in the file of a character, or just behind the last one."""
        if not self.at:
            return 0
        return self.at[index] if index < len(self.at) else self.at[-1] + 1

    def line(self, index: int) -> int:
        """The line in the file of a character."""
        return self.text.line(self.offset(index))

    def of(self, node: Node) -> str:
        """A node as it is written."""
        return self.src[node.start_byte : node.end_byte]

    @cached_property
    def _joins(self) -> tuple[list[tuple[int, int]], list[int]]:
        self._hold()
        return joins(self.src)

    @property
    def glued(self) -> list[int]:
        """The places in the file of the backslashes that make one word of two, the second a flag."""
        return [self.offset(index) for index in glued(self.src, self._joins[0])]

    @property
    def loose(self) -> list[int]:
        """The places in the file of the backslashes that only blanks follow on their line: they join nothing."""
        return [self.offset(index) for index in self._joins[1]]

    def joined(self) -> Script:
        """The text as Bash has it before it looks for words: without the backslashes that join lines."""
        spans = self._joins[0]
        if not spans:
            return self
        kept, at = [], 0
        for start, end in [*spans, (len(self.src), len(self.src))]:
            kept.append((at, start))
            at = max(at, end)
        places = tuple(self.offset(index) for start, end in kept for index in range(start, end))
        return Script(self.text, "".join(self.src[start:end] for start, end in kept), places)

    def _hold(self) -> None:
        if len(self.src) > MOST_CHARACTERS:
            raise UnusableInput(
                f"The shell text has more than {MOST_CHARACTERS >> 10} KiB.", where=self.text.at(self.offset(0))
            )

    def parse(self) -> Node:
        """The syntax tree, with byte offsets equal to character offsets; raises UnusableInput when too big."""
        self._hold()
        depth = 0
        for match in _NESTING.finditer(self.src):
            depth = depth + 1 if match["open"] else max(depth - 1, 0)
            if depth > MOST_NESTING:
                raise UnusableInput(
                    f"The shell text is nested more than {MOST_NESTING} deep.",
                    where=self.text.at(self.offset(match.start())),
                )
        return _parser().parse(_readable(self.src).encode("ascii", "replace")).root_node

    def loose_words(self) -> Iterator[Node]:
        """The words and assignments of a list that is no command, in order; raises UnusableInput when too big."""
        stack = list(self.parse().named_children)
        while stack:
            node = stack.pop(0)
            if node.type in ("command", "command_name", "variable_assignments"):
                stack[:0] = node.named_children
            else:
                yield node


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _readable(src: str) -> str:
    """The text with placeholders such as `<node0-ip>` as plain words and line ends as a shell has them.

    An escaped blank is part of a word, which the grammar does not always see, and a comment between backticks is
    nothing at all.
    """
    src = _PLACEHOLDER.sub(lambda match: re.sub(r"\W", "_", match.group()), src)
    src = _BACKTICK_COMMENT.sub(lambda match: " " * len(match.group()), src)
    src = _ESCAPED_BLANK.sub(r"\1__", src)
    return src.replace("\\\r\n", " \\\n").replace("\r\n", " \n")
