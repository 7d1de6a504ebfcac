"""Characters that only look like those of a command: what editors, chats and other shells make of a pasted one."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from perilune.errors import UnusableInput
from perilune.plan.sources.changes import Change, applied
from perilune.plan.sources.found import Found, Note, Reading, Word
from perilune.plan.sources.text import Text

MOST_MARKS = 2_000
MOST_LOOKED_AT = 1_000_000
_DASH = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_SPACE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_ZERO = "\u00ad\u200b-\u200f\u2060\ufeff"
_DOUBLE, _SINGLE = "\u201c-\u201f\u2033\uff02", "\u2018-\u201b\u2032\uff07"
_ODD = re.compile(rf"[{_DASH}{_SPACE}{_ZERO}{_DOUBLE}{_SINGLE}]|[ \t][`^][ \t]*\r?\n")
_PIECES = re.compile(
    rf"(?P<comment>(?m:^)[ \t]*\#[^\n]*)"
    rf"|(?P<flag>(?<![\w{_DASH}-])[-{_DASH}]+(?=[A-Za-z])[\w{_DASH}-]*)"
    rf"|(?P<space>[{_SPACE}])"
    rf"|(?P<zero>[{_ZERO}])"
    rf"|(?P<double>[{_DOUBLE}])"
    rf"|(?P<single>[{_SINGLE}])"
    rf"|(?<=[ \t])(?P<turn>[`^][ \t]*)(?=\r?\n[ \t{_SPACE}{_ZERO}]*[-{_DASH}])"
)
_RUN = re.compile(rf"[-{_DASH}]*[{_DASH}][-{_DASH}]*")
_MEANT = {"space": " ", "zero": "", "double": '"', "single": "'", "turn": "\\"}
_NAMES = {"`": "the line end of PowerShell (`)", "^": "the line end of cmd (^)"}
_GAP = re.compile(r"[\s\\'\"]*")


@dataclass(frozen=True, slots=True)
class Mark:
    """One character, or a run of dashes, and what it was meant for."""

    start: int
    end: int
    new: str
    kind: str


def odd(text: str) -> bool:
    """Whether a text holds a character of the kind at all."""
    return (not text.isascii() or "`" in text or "^" in text) and _ODD.search(text) is not None


def as_meant(text: Text, read: Callable[[Text], Reading]) -> Reading:
    """The reading of a text with the commands in it as they were meant, what was odd in them said as errors.

    Only characters inside a server's command count; all others stay.
    """
    if not odd(text.text):
        return read(text)
    marks = list(islice(_marks(text.text), MOST_MARKS + 1))
    try:
        _hold(len(marks), MOST_MARKS)
        for tried in (marks, [mark for mark in marks if mark.kind not in ("double", "single")]):
            chosen = _chosen(text, tried, read) if tried else []
            if chosen:
                reading = read(applied(text, _changes(chosen)))
                return reading.with_notes(*_notes(text, chosen))
    except _TooMany:
        message = "It has too many dashes, quotes and blanks of other scripts to look for those in its commands."
        return read(text).with_notes(Note(message, 1))
    return read(text)


class _TooMany(Exception):
    """More than can be looked at."""


def _hold(number: int, most: int) -> None:
    if number > most:
        raise _TooMany


def _marks(source: str) -> Iterator[Mark]:
    for match in _PIECES.finditer(source):
        kind = match.lastgroup or ""
        if kind == "comment":
            continue
        if kind != "flag":
            yield Mark(match.start(), match.end(), _MEANT[kind], kind)
            continue
        for run in _RUN.finditer(match.group()):
            first = match.start() + run.start()
            letters = len(match.group()) - run.end()
            new = "-" if run.start() or letters == 1 else "--"
            yield Mark(first, match.start() + run.end(), new, kind)


def _changes(marks: Sequence[Mark]) -> Iterator[Change]:
    return (Change(mark.start, mark.end, mark.new) for mark in marks)


def _chosen(text: Text, marks: Sequence[Mark], read: Callable[[Text], Reading]) -> list[Mark]:
    """The marks that stand in a server's command, where the text with all of them replaced can be read."""
    meant = applied(text, _changes(marks))
    try:
        servers = read(meant).servers
    except UnusableInput:
        return []
    _hold(len(marks) * sum(len(one.words) + len(one.env) + 1 for one in servers), MOST_LOOKED_AT)
    chosen, moved = [], 0
    for mark in marks:
        place = mark.start + moved
        moved += len(mark.new) - (mark.end - mark.start)
        if any(_belongs(mark, place, meant.text, one) for one in servers):
            chosen.append(mark)
        elif servers and mark.kind == "space" and not meant.text[meant.text.rfind("\n", 0, place) + 1 : place].strip():
            chosen.append(mark)  # an indent
    return chosen


def _belongs(mark: Mark, place: int, source: str, found: Found) -> bool:
    words = [word for word in (found.head, *found.words, *found.env.values()) if word and word.at is not None]
    inside = next((word for word in words if _first(word) <= place < word.end), None)
    if inside is not None:
        content = place in inside.places
        if mark.kind == "flag":
            return inside.text.startswith("-")
        if mark.kind == "space":
            return False
        return mark.kind != "turn" and (not content or mark.kind == "zero" or _is_json(inside.text))
    if found.first <= place <= found.last + (mark.kind == "zero"):
        return True
    behind = next((word for word in words if _first(word) >= place), None)
    before = next((word for word in reversed(words) if word.end <= place), None)
    if behind is None or before is None:
        return False
    return _GAP.fullmatch(source, before.end, _first(behind)) is not None


def _first(word: Word) -> int:
    return word.start if word.start is not None else word.at or 0


def _is_json(text: str) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _notes(text: Text, marks: Sequence[Mark]) -> Iterator[Note]:
    """One sentence for each character of a line, with the columns it stands in."""
    places: dict[tuple[int, str, str], list[int]] = {}
    for mark in marks:
        line = text.line(mark.start)
        char = next((c for c in text.text[mark.start : mark.end] if c != "-"), "-")
        column = mark.start - (text.text.rfind("\n", 0, mark.start) + 1) + 1
        places.setdefault((line, char, mark.new), []).append(column)
    for (line, char, new), columns in places.items():
        where = f"Column {columns[0]} has" if len(columns) == 1 else f"Columns {', '.join(map(str, columns))} have"
        name = _NAMES.get(char) or f"{unicodedata.name(char, 'a character')} (U+{ord(char):04X})"
        instead = {"": "which nothing shows and the server gets", " ": "where a blank belongs"}.get(
            new, f"where {new} belongs"
        )
        fix = "Remove it." if not new else "Type a blank." if new == " " else f"Type {new} instead."
        yield Note(f"{where} {name} {instead}.", line, fix, "typography", "error")
