"""From a command's words to a server, each word with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from perilune.errors import UnusableInput
from perilune.plan.commandline.form import assignment, container_tool, read_form
from perilune.plan.commandline.words import MAX_WORDS
from perilune.plan.server import Server
from perilune.plan.sources.beside import Beside, with_config
from perilune.plan.sources.env_files import env_files_unread
from perilune.plan.sources.found import Found, Note, Reading, Word
from perilune.plan.sources.inner import machine_of
from perilune.plan.sources.joined import taken_apart
from perilune.plan.sources.machines import ContainerRun, nodes_of_step, runs_container
from perilune.plan.sources.script import Script
from perilune.plan.sources.shell import Command, Walk
from perilune.plan.sources.text import Text
from perilune.plan.sources.unknown import without_unknown
from perilune.plan.sources.ways import Way, both
from perilune.plan.sources.words import Piece, Scope

HERE = "\0here"  # the machine that the script runs on, until its other servers are known
SCRIPTS = frozenset({"command", "shell script", "sbatch script"})
_OWN_FOLDER = re.compile(
    r"(?:\$\([^\n]*\b(?:dirname|BASH_SOURCE)\b[^\n]*\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\})/(?=[^$]*$)"
)
_VARIABLE = re.compile(r"\$\{?\w+\}?")
_ROUTERS = frozenset({"sglang-router", "smg"})
_ONLY_NAMES = frozenset(
    {
        "echo", "printf", "pgrep", "pkill", "grep", "egrep", "fgrep", "which", "type", "man", "alias", "test", "logger",
        "pip", "pip3", "ps", "awk", "sed", "trap",
    }
)  # fmt: skip
_HELP = frozenset({"-h", "--help", "--version"})
DYNAMO = "dynamo.sglang"
MOST_SERVERS = 2_000


class TooManyServers(Exception):
    """A file names more servers than any fleet has; nothing that reads parts of it goes on with the rest."""


@dataclass
class Surroundings:
    """What a document adds to the commands in it, and what was found so far.

    `given` are variables that only the document's own text can use (the size of a group of pods); `configs`
    the `--config` files that the document itself holds, as flags, by name, and `beside` finds others. `host`,
    `gpus_visible`, `group_size` and `way` are those of every server in the part. `settled` says that nobody can
    give the variables another value at the start, `host_expands` that the host puts its variables in first,
    `foreign` that files nobody read set variables, `elides` that `...` stands for what a page leaves out.
    """

    text: Text
    kind: str
    name: str = ""
    image: str | None = None
    image_at: int | None = None
    env: Mapping[str, Word] = field(default_factory=dict)
    env_tail: Word | None = None
    given: Mapping[str, Word] = field(default_factory=dict)
    configs: Mapping[str, tuple[Word, ...]] = field(default_factory=dict)
    beside: Beside | None = None
    host: str = ""
    gpus_visible: int | None = None
    group_size: int | None = None
    way: Way = field(default_factory=dict)
    settled: bool = True
    foreign: bool = False
    elides: bool = False
    host_expands: bool = False
    found: list[Found] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    routers: list[tuple[str, ...]] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)  # characters of commands that were looked at
    data: list[tuple[int, int]] = field(default_factory=list)  # characters of here-documents that are no scripts

    def reading(self, kind: str, platform: str | None) -> Reading:
        """Everything found so far."""
        routers = tuple(dict.fromkeys(self.routers))
        return Reading(kind, tuple(self.found), tuple(self.notes), platform, routers, self.text)

    def sourced(self, name: str) -> Text | None:
        """The text of a file that a script sources; None where it is nowhere or cannot be read."""
        if (own := _OWN_FOLDER.match(name)) is not None:
            name = name[own.end() :]
        try:
            return self.beside.find(name, None) if self.beside is not None else None
        except UnusableInput:
            return None

    def of(self, kind: str, name: str, image: str | None = None, image_at: int | None = None) -> Surroundings:
        """The same document with another part of it around the commands."""
        return replace(self, kind=kind, name=name, image=image, image_at=image_at, env={}, env_tail=None)


def read_script(script: Script, around: Surroundings) -> None:
    """Add the servers that a script starts."""
    first = len(around.found)
    scope = Scope()
    for name, word in around.env.items():
        scope.variables[name] = Piece(word.text, _places(word), word.start, word.end, around.settled)
        scope.exported[name] = None
    scope.variables |= {name: Piece(word.text, (), None) for name, word in around.given.items()}
    walk = Walk(
        script,
        lambda command: add_command(command, around, expands=True),
        around.notes,
        around.seen,
        around.data,
        around.sourced,
    )
    walk.run(scope)
    around.found[first:] = list(on_machines(_distinct(around.found[first:]), around.text.name))


def _distinct(found: Sequence[Found]) -> list[Found]:
    """Each server of a line once; one of a way that the script itself decides against only where no other is."""
    kept: dict[tuple[Server, int], Found] = {}
    likely = {one.first for one in found if not one.unlikely}
    for one in found:
        if one.unlikely and one.first in likely:
            continue
        key = (one.server, one.line)
        known = kept.get(key)
        kept[key] = one if known is None else replace(known, ways=both(known.ways, one.ways))
    return list(kept.values())


def on_machines(found: Sequence[Found], name: str) -> Iterator[Found]:
    """The servers with the machine of the script for those that run on it side by side.

    A list of commands that each keep the next one waiting is meant for several machines.
    """
    side_by_side = any(one.background for one in found if one.host == HERE)
    waited = {one.line for one in found if one.host == HERE and not one.background}
    for one in found:
        if one.host != HERE:
            yield one
        else:
            shares = side_by_side and (one.background or len(waited) == 1)
            yield replace(one, host=f"the machine of {name or 'the command'}" if shares else "")


def _places(word: Word) -> tuple[int, ...]:
    return word.places if len(word.places) == len(word.text) else (word.at or 0,) * len(word.text)


def add_command(command: Command, around: Surroundings, *, expands: bool) -> None:
    """Add the server that a command starts, if it starts one."""
    texts = [word.text for word in command.words]
    if len(texts) > MAX_WORDS:
        raise UnusableInput(f"A command has more than {MAX_WORDS:,} words.", where=around.text.at(command.first))
    if (router := _router(texts)) is not None:
        around.routers.append(router)
    if not texts or not _names_launcher(texts):
        return
    if len(around.found) >= MOST_SERVERS:
        raise TooManyServers
    before = len(around.seen)
    around.seen.append((command.first, command.last))
    for word in command.words:  # those that stand in a variable
        if word.at is not None and not command.first <= word.at <= command.last:
            around.seen.append((word.at if word.start is None else word.start, word.end))
    if PurePosixPath(texts[0]).name in _ONLY_NAMES or _HELP.intersection(texts):
        return
    server, words = _server(command, texts)
    if server is None:
        del around.seen[before:]
        return
    start = next((i for i, word in enumerate(command.words) if words and word is words[0]), len(command.words))
    head = command.words[start - 1] if start else None
    line = around.text.line(head.at if head is not None and head.at is not None else command.first)
    env = {**command.env, **_wrapper_env(command.words), **command.inside}
    server, words = taken_apart(server, words, around)
    server, words, unread = without_unknown(server, words, command, around)
    image, image_at = server.image or around.image, around.image_at
    if server.image:
        image_at = next((word.at for word in reversed(command.words[:start]) if word.text == server.image), None)
    container = runs_container(server.wrapper)
    found = Found(
        server, around.kind, line, around.name, words, head, env,
        command.first if expands else None, around.env_tail, image, image_at, expands,
        ways=({**around.way, **command.way},), unlikely=command.unlikely,
        gpus_visible=container.gpus if container and container.gpus else around.gpus_visible,
        group_size=nodes_of_step(server.wrapper) or around.group_size,
        host=_host(command, server, around, container),
        background=command.background or (container is not None and container.detached),
        first=command.first, last=command.last,
        foreign=command.foreign or around.foreign or env_files_unread(server, around, command.first),
    )  # fmt: skip
    found = with_config(found, around)
    around.found.append(found if found.unread or not unread else replace(found, unread=unread))


def _host(command: Command, server: Server, around: Surroundings, container: ContainerRun | None) -> str:
    if around.host or (container is not None and not container.shares_network):
        return around.host
    outside = machine_of([Word(word) for word in server.wrapper]) if command.machine is None else command.machine
    alone = container is None and around.kind not in SCRIPTS
    return HERE if outside is None and not alone else outside or ""


def _router(texts: Sequence[str]) -> tuple[str, ...] | None:
    """The argument list of a router's command; None for other commands."""
    for index, text in enumerate(texts):
        if text.startswith("sglang_router.") and index and texts[index - 1] == "-m":
            return tuple(texts[index + 1 :])
        if PurePosixPath(text).name in _ROUTERS and texts[index + 1 : index + 2] in (["launch"], ["start"]):
            return tuple(texts[index + 2 :])
    return None


def _names_launcher(texts: Sequence[str]) -> bool:
    return any(text.endswith("serve") or "sglang" in text for text in texts)


def _server(command: Command, texts: Sequence[str]) -> tuple[Server | None, tuple[Word, ...]]:
    outside = tuple((name, word.text) for name, word in command.env.items())
    for index in range(len(texts) - 1):
        if texts[index] == "-m" and texts[index + 1] == DYNAMO and "python" in texts[index - 1]:
            words = _without_dynamo(command.words[index + 2 :])
            argv = tuple(word.text for word in words)
            if "--host" not in argv:  # Dynamo serves on the address of the pod
                words = (*words, Word("--host"), Word("0.0.0.0"))  # noqa: S104
                argv = tuple(word.text for word in words)
            return Server(argv, outside, tuple(texts[index - 1 : index + 2]), ()), words
    named = [
        "python3" if following == "-m" and _VARIABLE.fullmatch(text) else text
        for text, following in zip(texts, [*texts[1:], ""], strict=True)
    ]
    try:
        read = read_form(named)
    except UnusableInput:
        return None, ()
    if not read.program:
        return None, ()
    words = command.words[len(texts) - len(read.argv) :] if read.argv else ()
    env = dict(outside) | dict(read.env)
    wrapper = read.wrapper
    if "env" in wrapper and not container_tool(wrapper):
        env |= dict(pair for word in wrapper[wrapper.index("env") :] if (pair := assignment(word)))
    if command.inside and container_tool(wrapper):
        given = tuple(w for name, word in command.inside.items() for w in ("--env", f"{name}={word.text}"))
        wrapper = (*wrapper[:-1], *given, wrapper[-1])
    return Server(read.argv, tuple(env.items()), read.program, wrapper), words


def _without_dynamo(words: Sequence[Word]) -> tuple[Word, ...]:
    """The engine's own words: `--dyn-*` flags are read by Dynamo."""
    kept: list[Word] = []
    skipping = False
    for word in words:
        if word.text.startswith("--"):
            skipping = word.text.startswith("--dyn-")
        if not skipping:
            kept.append(word)
    return tuple(kept)


def _wrapper_env(words: Sequence[Word]) -> dict[str, Word]:
    found = {}
    for word in words:
        pair = assignment(word.text.removeprefix("--env="))
        if pair and not word.text.startswith("--" if "--env=" not in word.text else "---"):
            places = word.places[-len(pair[1]) :] if pair[1] else ()
            whole = places and word.start is not None and places == tuple(range(places[0], places[0] + len(places)))
            found[pair[0]] = Word(
                pair[1], places[0] if places else word.at, places[0] if whole else None,
                places[-1] + 1 if places else 0, word.style, places,
            )  # fmt: skip
    return found
