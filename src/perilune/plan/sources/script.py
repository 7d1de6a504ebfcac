"""Shell text through the Bash grammar, with every character's place in the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.sources.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_CHARACTERS = 256 * 1024
MOST_NESTING = 400  # the parser itself gives up, badly, at some tens of thousands
_NESTING = re.compile(r"(?P<open>[(\[{]|\b(?:if|case|do)\b)|[)\]}]|\b(?:fi|esac|done)\b")
_PLACEHOLDER = re.compile(r"(?<!<)<[A-Za-z](?:[\w .:/-]*[\w.:/-])?>|\{\{[^{}\n]*\}\}")


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

    def parse(self) -> Node:
        """The syntax tree, with byte offsets equal to character offsets; raises UnusableInput when too big."""
        if len(self.src) > MOST_CHARACTERS:
            raise UnusableInput(
                f"The shell text has more than {MOST_CHARACTERS >> 10} KiB.", where=self.text.at(self.offset(0))
            )
        depth = 0
        for match in _NESTING.finditer(self.src):
            depth = depth + 1 if match["open"] else max(depth - 1, 0)
            if depth > MOST_NESTING:
                raise UnusableInput(
                    f"The shell text is nested more than {MOST_NESTING} deep.",
                    where=self.text.at(self.offset(match.start())),
                )
        return _parser().parse(_readable(self.src).encode("ascii", "replace")).root_node


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _readable(src: str) -> str:
    """The text with placeholders such as `<node0-ip>` as plain words and line ends as a shell has them."""
    src = _PLACEHOLDER.sub(lambda match: re.sub(r"\W", "_", match.group()), src)
    return src.replace("\\\r\n", " \\\n").replace("\r\n", " \n")
