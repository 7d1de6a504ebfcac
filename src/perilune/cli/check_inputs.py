"""What `perilune check` is given: files, a pair of them, or one command."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perilune.cli import options
from perilune.errors import UnusableInput
from perilune.plan.server import Server
from perilune.plan.sources.beside import Beside
from perilune.plan.sources.found import Found, Reading, Word
from perilune.plan.sources.judge import Judge, Judged
from perilune.plan.sources.read import read_shell, read_source
from perilune.plan.sources.text import MOST_BYTES, NoServer, Text, read_text
from perilune.plan.sources.together import take_sides
from perilune.plan.sources.typography import odd

COMMAND_LINE = "command line"
_BARE = re.compile(r"[^\s'\"$`\\;&|<>(){}*?!#~]+")


@dataclass(frozen=True)
class Checked:
    """One input with everything found in it. `original` is its text before anything was made of it."""

    original: Text
    reading: Reading
    servers: list[Judged] = field(default_factory=list)
    beside: Beside | None = None

    @property
    def text(self) -> Text:
        """The text that was read."""
        return self.reading.text or self.original


@dataclass
class Inputs:
    """The inputs of one call; what cannot be used of them is collected in `problems`."""

    judge: Judge
    problems: list[UnusableInput] = field(default_factory=list)

    @property
    def other_problems(self) -> list[UnusableInput]:
        """The problems besides files that start no server."""
        return [problem for problem in self.problems if not isinstance(problem, NoServer)]

    def read(
        self, files: Sequence[Path], pair: tuple[Path, Path] | None, command: tuple[str, ...] | None
    ) -> list[list[Checked]]:
        """The inputs, those that belong together in one list; raises UnusableInput where nothing or too much is given.

        A file named twice is read once, and a `--config` file that a command names is no input of its own.
        """
        given = (bool(files) or bool(pair)) + (command is not None)
        if given == 0 or (files and pair):
            raise UnusableInput(
                "Nothing to check was given." if not given else "--pair names the files itself.",
                fix="Give files, or --pair PREFILL DECODE, or a command after `--`.",
            )
        if given > 1:
            raise UnusableInput("Both files and a command were given.", fix="Check one of them at a time.")
        if command is not None:
            return [[self._checked(*_read_command(command))]]
        if pair:
            return [self._pair(pair)]
        return self._files(files)

    def _pair(self, pair: tuple[Path, Path]) -> list[Checked]:
        """Two inputs, the first the prefill side and the second the decode side, whatever they say themselves."""
        beside = Beside()
        prefill = self._checked(*_read(pair[0], beside))
        same = _same(pair[0]) == _same(pair[1])
        decode = prefill if same else self._checked(*_read(pair[1], beside))
        sided = take_sides(prefill.servers, decode.servers)
        sides: tuple[list[Judged], list[Judged]] = ([], [])
        for one in sided:
            if one.side or not same:
                sides[one.source].append(one)
        both = zip((prefill, decode), sides, strict=True)
        return [Checked(one.original, one.reading, servers, one.beside) for one, servers in both]

    def _files(self, files: Sequence[Path]) -> list[list[Checked]]:
        different = {_same(path): path for path in reversed(files)}
        paths = [path for path in dict.fromkeys(files) if different[_same(path)] == path]
        given = {path.name: path for path in paths}
        used: set[Path] = set()
        groups: dict[Path, Checked] = {}
        for path in paths:
            beside = Beside(given, _folders(path), used)
            try:
                groups[_same(path)] = self._checked(*_read(path, beside))
            except UnusableInput as problem:
                self.problems.append(problem)
        return [[one] for path, one in groups.items() if path not in used or one.reading.kind != "config file"]

    def _checked(self, original: Text, reading: Reading, beside: Beside | None = None) -> Checked:
        text = reading.text or original
        told = [note for note in reading.notes if note.unread or note.severity == "error"]
        if not reading.servers:
            for note in told[:1]:
                raise UnusableInput(note.message, where=text.at_line(note.line), fix=note.fix or None)
            raise NoServer("It starts no SGLang server.", where=text.name)
        self.problems += [
            UnusableInput(note.message, where=text.at_line(note.line), fix=note.fix or None)
            for note in told
            if note.unread
        ]
        return Checked(original, reading, self.judge.servers(text, reading, self.problems), beside)


def _same(path: Path) -> Path:
    """One name for a file, however it is written."""
    return path if str(path) == "-" else Path(os.path.realpath(path))


def _folders(path: Path) -> tuple[Path, ...]:
    return (Path(),) if str(path) == "-" else tuple(dict.fromkeys((path.parent, Path())))


def _read(path: Path, beside: Beside) -> tuple[Text, Reading, Beside]:
    text = _piped() if str(path) == "-" else read_text(path)
    beside = Beside(beside.given, beside.folders or _folders(path), beside.used)
    return text, read_source(text, beside), beside


def _piped() -> Text:
    return Text.decode(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input")


def _read_command(command: tuple[str, ...]) -> tuple[Text, Reading]:
    given = options.command_text(command)
    if not isinstance(given, str) and any(odd(word) for word in given):
        given = " ".join(word if _BARE.fullmatch(word) else shlex.quote(word) for word in given)
    if isinstance(given, str):
        text = Text.decode(given.encode("utf-8", "surrogateescape"), COMMAND_LINE)
        reading = read_shell(text)
        if reading.servers:
            return text, reading
    server = Server.parse(given)
    words = tuple(Word(word) for word in server.argv)
    return Text("", ""), Reading("command", (Found(server, "command", 1, words=words, expands=True),))


def routers_in(path: Path | None) -> tuple[tuple[str, ...], ...]:
    """The argument lists of the routers that a file starts; raises UnusableInput where it starts none."""
    if path is None:
        return ()
    _, reading, _ = _read(path, Beside())
    if not reading.routers:
        raise UnusableInput("It starts no router.", where=str(path), fix="Give the file with its command.")
    return reading.routers
