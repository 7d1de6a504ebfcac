"""Words of a command that only a run can tell: flags that a variable brings, or another program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from perilune.plan.server import Server
from perilune.plan.sources.found import Note, Word

if TYPE_CHECKING:
    from perilune.plan.sources.launch import Surroundings
    from perilune.plan.sources.shell import Command

_EXPANSION = re.compile(r"(?:\$(?:\w+|[@*]|\{[^{}]*\}|\(.*\))|`[^`]*`)+", re.DOTALL)
_ELISION = frozenset({"...", "…"})
_COMPUTED = re.compile(r"\$\(|`")


def without_unknown(
    server: Server, words: tuple[Word, ...], command: Command, around: Surroundings
) -> tuple[Server, tuple[Word, ...], str]:
    """A server without the words that stand for flags nobody knows, and their name where the server needs them.

    A variable that nothing sets is taken to be empty, as it is for whoever runs the script as it stands. It is
    needed where a file or a command sets it, or where no model is named without it.
    """
    gone = list(_unknown(server, words, around))
    adds = next((word.text for word in command.words if PurePosixPath(word.text).name == "xargs"), "")
    if not gone and not adds:
        return server, words, ""
    names = list(dict.fromkeys(words[index].text for index in gone))
    named = f"What {', '.join(names)[:80] or adds} adds to the command is not known"
    needed = (
        bool(adds) or not _ELISION.isdisjoint(names) or command.foreign or any(_COMPUTED.search(name) for name in names)
    )
    needed = needed or not server.has("--model-path")
    place = words[gone[0]].at if gone else command.first
    told = f"{named}: what depends on it is not checked." if needed else f"{named}: it is taken to be nothing."
    around.notes.append(Note(told, around.text.line(command.first if place is None else place)))
    kept = tuple(word for index, word in enumerate(words) if index not in gone)
    return replace(server, argv=tuple(word.text for word in kept)), kept, (names or [adds])[0] if needed else ""


def _unknown(server: Server, words: tuple[Word, ...], around: Surroundings) -> Iterator[int]:
    """The numbers of the words that belong to no flag and are nothing but what a run puts in."""
    of_flags = {index for flag in server.flags for index in range(flag.position, flag.end)}
    for index, word in enumerate(words):
        open_ = not word.sure or around.host_expands
        expands = index not in of_flags and open_ and _EXPANSION.fullmatch(word.text)
        if expands or (around.elides and word.text in _ELISION):
            yield index
