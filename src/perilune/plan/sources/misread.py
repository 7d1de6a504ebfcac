"""Flags that Bash takes for something else because of a backslash that does not do its work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perilune.plan.commandline.occurrences import find_option
from perilune.plan.sources.changes import Change
from perilune.plan.sources.found import Note, Word
from perilune.plan.sources.script import Script

if TYPE_CHECKING:
    from tree_sitter import Node

_BLANKS_THEN_FLAG = re.compile(r"[ \t]+(?=\r?\n[ \t]*--?[A-Za-z])")
_ENDS = "End the line before it with a backslash and nothing else; a comment or a blank behind it ends the command."


@dataclass(frozen=True, slots=True)
class Broken:
    """The backslashes of a script that join two words into one, and those with a blank behind them."""

    glued: tuple[int, ...]
    loose: tuple[int, ...]


def of_command(script: Script, broken: Broken, node: Node, words: Sequence[Word]) -> Iterator[Note]:
    """What is lost of one command."""
    if not any(_is_option(word.text) for word in words):
        return
    text = script.text
    for place in broken.loose:
        if any(word.covers(place) for word in words):
            inside = script.offset(node.start_byte) <= place < script.offset(node.end_byte)
            message = "The backslash at the end of this line has a blank behind it, which makes a word of its own: " + (
                "the command ends here, and the flags below are lost."
                if inside
                else "the server gets a blank for an argument."
            )
            fix = "Remove what stands behind the backslash."
            yield Note(message, text.line(place), fix, "line-lost", "error", repair=_closed(text.text, place))
    for place in broken.glued:
        word = next((word for word in words if word.covers(place)), None)
        if word is not None:
            joined = next((i for i, at in enumerate(word.places) if at > place), 0)
            message = (
                "The backslash at the end of this line joins it to the next without a blank, so "
                f"{word.text[joined : joined + 40].partition('=')[0]} is the end of the word before it and no flag."
            )
            fix = "Put a blank before the backslash."
            yield Note(message, text.line(place), fix, "line-glued", "error", repair=Change(place, place, " "))
    start = script.line(node.start_byte)
    if _is_option(words[0].text) and all(text.line(place) != start - 1 for place in broken.loose):
        message = f"{words[0].text[:40]} starts a command of its own, so no server gets it or the flags behind it."
        yield Note(message, start, _ENDS, "line-lost", "error")


def _is_option(word: str) -> bool:
    return word.startswith("--") and find_option(word.partition("=")[0]) is not None


def _closed(source: str, place: int) -> Change | None:
    """The blanks behind a backslash gone, where a flag is on the next line."""
    blanks = _BLANKS_THEN_FLAG.match(source, place + 1)
    return Change(place + 1, blanks.end(), "") if blanks else None
