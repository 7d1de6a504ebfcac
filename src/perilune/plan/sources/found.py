"""What reading a file gives: servers, each word with its place, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from perilune.plan.commandline.occurrences import find_option
from perilune.plan.rules.finding import Severity
from perilune.plan.server import Server
from perilune.plan.sources.changes import Change
from perilune.plan.sources.text import Text
from perilune.plan.sources.ways import ANY_WAY, Ways

Style = Literal["shell", "item", "entry", "json"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word and where it stands: `at` is its first character, `start` to `end` what to replace to change it.

    `start` is None where the word is put together from several places, `at` too where it stands nowhere.
    `style` is how it is written: in a shell, as an item or the value of an entry in YAML, in a JSON list.
    `places` has every character's place where the word is more than its plain text; `sure` says that the run
    will find this text, not only where nothing else was given.
    """

    text: str
    at: int | None = None
    start: int | None = None
    end: int = 0
    style: Style = "shell"
    places: tuple[int, ...] = field(default=(), repr=False, compare=False)
    sure: bool = field(default=True, repr=False, compare=False)

    def covers(self, place: int) -> bool:
        """Whether a character of the file is part of how the word is written."""
        first = self.at if self.start is None else self.start
        return first is not None and first <= place < self.end


@dataclass(frozen=True, slots=True)
class Found:
    """One server of a file.

    `kind` is the form of its document and `name` what the document calls it; `line` is where its command
    starts. `words` are those of `server.argv`, in order, `head` the word before them, and `env` the values of
    its variables. `opening` is where a variable could be put in front of a shell command, `env_tail` the last
    entry of a list of variables. `image_at` is where the image is named. `expands` says that a shell reads the
    command first.

    `ways` say what the branches that lead here take for granted, so that servers of ways that exclude each other
    are never taken to run together; `unlikely` marks one that stands behind a test or an end that the script itself
    decides otherwise. `unread` names what brings flags that are not known, `platform` what the text says of
    this server alone, and `composed` that Perilune wrote the command, so that its placeholders are to be filled in.
    `gpus_visible`, `group_size` and `host` are what the rules know by those names; `background` says that the shell
    does not wait for the server, `foreign` that files nobody read set variables of it. `first` to `last` are the
    characters of the command where it stands in one place.
    """

    server: Server
    kind: str
    line: int
    name: str = ""
    words: tuple[Word, ...] = ()
    head: Word | None = None
    env: Mapping[str, Word] = field(default_factory=dict)
    opening: int | None = None
    env_tail: Word | None = None
    image: str | None = None
    image_at: int | None = None
    expands: bool = False
    ways: Ways = ANY_WAY
    unlikely: bool = False
    unread: str = ""
    platform: str | None = None
    composed: bool = False
    gpus_visible: int | None = None
    group_size: int | None = None
    host: str = ""
    background: bool = False
    foreign: bool = False
    first: int = 0
    last: int = -1

    def place_of(self, name: str) -> int | None:
        """The first character of a flag or of a variable's value; None where it is not written in the file."""
        option = find_option(name)
        wanted = option.name if option else name
        for flag in reversed(self.server.flags):
            if wanted in (flag.name, flag.spelled):
                return self.words[flag.position].at if flag.position < len(self.words) else None
        if name == "image":
            return self.image_at
        word = self.env.get(name)
        return word.at if word else None


@dataclass(frozen=True, slots=True)
class Note:
    """What the form of a file says: by default what was not checked, else a defect of its own with an `id`.

    `unread` marks a server that stands there and was not judged, so that nothing said of the file is complete.
    `repair` makes of the text what its writer saw in it.
    """

    message: str
    line: int
    fix: str = ""
    id: str = "not-checked"
    severity: Severity = "advice"
    unread: bool = False
    repair: Change | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything a file says: its servers and routers, what could not be read, and the platform when it is certain.

    `text` is what was read; the file's own but for characters that only look like those of a command.
    """

    kind: str
    servers: tuple[Found, ...] = ()
    notes: tuple[Note, ...] = ()
    platform: str | None = None
    routers: tuple[tuple[str, ...], ...] = ()
    text: Text | None = None

    def with_notes(self, *notes: Note) -> Reading:
        """The same with more to say, each thing once and in the order of the lines."""
        every = dict.fromkeys((*self.notes, *notes))
        return replace(self, notes=tuple(sorted(every, key=lambda note: note.line)))
