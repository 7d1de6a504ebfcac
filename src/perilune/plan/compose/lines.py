"""A long shell command, line by line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from perilune.facts.recipes import words


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the words a program gets, and their shell text."""

    words: tuple[str, ...]
    text: str
    indent: int = 2


def trusted(text: str, indent: int = 2) -> Line:
    """A line of the catalog's own shell text, such as `-v ~/.cache:/root/.cache`; the shell expands it."""
    return Line(words(text), text, indent)


def quoted(parts: Sequence[str], indent: int = 2) -> Line:
    """A line of words that the shell must take literally."""
    return Line(tuple(parts), shlex.join(parts), indent)


def joined(lines: Sequence[Line]) -> str:
    """The command as shell text, a backslash at the end of each line but the last."""
    return " \\\n".join(" " * line.indent + line.text for line in lines)


def all_words(lines: Sequence[Line]) -> tuple[str, ...]:
    """The words of all lines."""
    return tuple(word for line in lines for word in line.words)
