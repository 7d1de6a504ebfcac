"""The files that commands name: in the same document, in the same call, or beside the script."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from perilune.errors import UnusableInput
from perilune.plan.sources.found import Found, Note, Word
from perilune.plan.sources.text import Text, read_text

if TYPE_CHECKING:
    from perilune.plan.sources.launch import Surroundings

_YAML = frozenset({".yaml", ".yml"})


@dataclass(frozen=True)
class Beside:
    """Where to look for a file that a command names: among the files `given` by name, then in `folders`.

    A name that leads out of a folder is not followed. `used` collects what was read.
    """

    given: Mapping[str, Path] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    used: set[Path] = field(default_factory=set)

    def find(self, name: str, suffixes: Container[str] | None = _YAML) -> Text | None:
        """The text of the file; None where it is nowhere, raises UnusableInput where it cannot be read.

        Only names that end in one of `suffixes` are looked for, any where that is None.
        """
        path = PurePosixPath(name)
        if (suffixes is not None and path.suffix.lower() not in suffixes) or "\0" in name or "$" in name:
            return None
        for candidate in self._candidates(path):
            if candidate.is_file():
                self.used.add(Path(os.path.realpath(candidate)))
                return read_text(candidate)
        return None

    def _candidates(self, path: PurePosixPath) -> list[Path]:
        found = [self.given[path.name]] if path.name in self.given else []
        for folder in self.folders:
            named = Path(folder, path)
            if Path(os.path.realpath(named)).is_relative_to(os.path.realpath(folder)):
                found.append(named)
        if path.is_absolute() and self.folders:
            found.append(self.folders[0] / path.name)  # where it will lie on another machine
        return found


def with_config(found: Found, around: Surroundings) -> Found:
    """The server with the flags of its `--config` file in front; where that is not read, its name in `unread`."""
    argv = found.server.argv
    places = [index for index, word in enumerate(argv) if word == "--config" and index + 1 < len(argv)]
    if not places:
        return found
    at = places[0]
    line = around.text.line(found.words[at].at or 0)
    inside, why = _flags(argv[at + 1], around, line)
    if inside is None:
        message = f"The file {argv[at + 1][:80]} is not read{why}: what depends on its flags is not checked."
        fix = "Put it beside this file, or give it in the same call."
        around.notes.append(Note(message, line, fix))
    words = (*(inside or ()), *found.words[:at], *found.words[at + 2 :])
    server = replace(found.server, argv=tuple(word.text for word in words))
    return replace(found, server=server, words=words, unread=argv[at + 1] if inside is None else "")


def _flags(name: str, around: Surroundings, line: int) -> tuple[tuple[Word, ...] | None, str]:
    """The flags in a file; None and why where it cannot be read."""
    from perilune.plan.sources import config  # which reads YAML, as few commands need

    held = around.configs.get(PurePosixPath(name).name)
    if held is not None or around.beside is None:
        return held, ""
    notes: list[Note] = []
    try:
        text = around.beside.find(name)
        words = config.flags_of(text, notes) if text is not None else None
    except UnusableInput as problem:
        return None, f" ({problem.message.removesuffix('.')})"
    if text is not None:
        told = (replace(note, message=f"{text.at_line(note.line)}: {note.message}", line=line) for note in notes)
        around.notes.extend(told)
    return words, ""
