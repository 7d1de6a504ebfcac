"""Flags that reach the server in one word with their values, because nothing splits them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from perilune.plan.commandline.occurrences import find_option
from perilune.plan.server import Server
from perilune.plan.sources.changes import Change
from perilune.plan.sources.found import Note, Word

if TYPE_CHECKING:
    from perilune.plan.sources.launch import Surroundings

_JOINED = re.compile(r"\s*(--[A-Za-z][\w-]*)\s+\S[\s\S]*")
_PART = re.compile(r"\S+")


def taken_apart(server: Server, words: tuple[Word, ...], around: Surroundings) -> tuple[Server, tuple[Word, ...]]:
    """The server as it was meant, each word that holds a flag and more said as an error."""
    of_flags = {index for flag in server.flags for index in range(flag.position, flag.end)}
    found: list[Word] = []
    for index, word in enumerate(words):
        match = _JOINED.fullmatch(word.text)
        if index in of_flags or match is None or find_option(match[1]) is None:
            found.append(word)
            continue
        parts = list(_parts(word))
        said = f"{match[1]} and what follows it are one word, which the server does not take apart."
        if any(part.text.startswith("--") for part in parts[1:]):
            fix = "Write every flag and every value as a word of its own."
        else:
            fix = f"Write {match[1]} and its value as two words, or with = between them."
        place = next((one.at for one in (word, *parts) if one.at is not None), None)
        line = around.text.line(place or 0)
        around.notes.append(Note(said, line, fix, "flag-joined", "error", repair=_repair(around, parts)))
        found += parts
    if len(found) == len(words):
        return server, words
    return replace(server, argv=tuple(word.text for word in found)), tuple(found)


def _parts(word: Word) -> Iterator[Word]:
    own = len(word.places) == len(word.text)
    for match in _PART.finditer(word.text):
        at = word.places[match.start() : match.end()] if own else ()
        whole = bool(at) and at == tuple(range(at[0], at[0] + len(at)))
        start = at[0] if at else None
        yield Word(match.group(), start, start if whole else None, at[-1] + 1 if at else 0, places=at, sure=word.sure)


def _repair(around: Surroundings, parts: list[Word]) -> Change | None:
    """`=` for the blanks between a flag and its one value."""
    if len(parts) != 2 or parts[0].start is None or parts[1].start is None:
        return None
    start, end = parts[0].end, parts[1].start
    return Change(start, end, "=") if around.text.text[start:end].strip(" ") == "" else None
