"""Changes of a text by the places of its characters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perilune.plan.sources.text import Text


@dataclass(frozen=True, slots=True)
class Change:
    """Characters `start` to `end` of a text become `new`."""

    start: int
    end: int
    new: str


class Unplaceable(Exception):
    """A change has no place in the text."""


def applied(text: Text, changes: Iterable[Change]) -> Text:
    """The text with every change made once; raises Unplaceable where two overlap."""
    source, last = text.text, len(text.text) + 1
    for change in sorted(dict.fromkeys(changes), key=lambda c: (c.start, c.end), reverse=True):
        if change.end > last:
            raise Unplaceable
        source = source[: change.start] + change.new + source[change.end :]
        last = change.start
    return replace(text, text=source)


def line_start(source: str, place: int) -> int:
    """Where the line of a character starts."""
    return source.rfind("\n", 0, place) + 1


def line_end(source: str, place: int) -> int:
    """Where the line of a character ends, before its CR or LF."""
    end = source.find("\n", place)
    end = len(source) if end < 0 else end
    return end - 1 if end > place and source[end - 1] == "\r" else end


def next_line(source: str, place: int) -> int:
    """Where the line behind that of a character starts."""
    end = source.find("\n", place)
    return len(source) if end < 0 else end + 1
