"""Changes of a text by the places of its characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perilune.plan.sources.text import Text

_NOTHING = re.compile(r"[ \t]*\\?[ \t]*\r?\n?")


@dataclass(frozen=True, slots=True)
class Change:
    """Characters `start` to `end` of a text become `new`."""

    start: int
    end: int
    new: str


class Unplaceable(Exception):
    """A change has no place in the text."""


def applied(text: Text, changes: Iterable[Change]) -> Text:
    """The text with every change made once; raises Unplaceable where two overlap.

    A line on which a removal leaves nothing is removed with it.
    """
    source, at = text.text, 0
    pieces: list[str] = []
    ordered = sorted(dict.fromkeys(changes), key=lambda c: (c.start, c.end))
    for change in _whole_lines(source, ordered):
        if change.start < at:
            raise Unplaceable
        pieces += (source[at : change.start], change.new)
        at = change.end
    return replace(text, text="".join((*pieces, source[at:])))


def _whole_lines(source: str, changes: Sequence[Change]) -> list[Change]:
    """The changes, those that remove all of a line's text as removals of the line."""
    by_line: dict[int, list[Change]] = {}
    for change in changes:
        by_line.setdefault(line_start(source, change.start), []).append(change)
    found: list[Change] = []
    for start, here in by_line.items():
        end = next_line(source, here[-1].end)
        kept, at = list[str](), start
        for change in here:
            kept += (source[at : change.start], change.new)
            at = max(at, change.end)
        rest, was = "".join((*kept, source[at:end])), source[start:end]
        gone = _NOTHING.fullmatch(rest) and not _NOTHING.fullmatch(was) and line_start(source, here[-1].end) == start
        found += [Change(start, end, "")] if gone else here
    return found


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
