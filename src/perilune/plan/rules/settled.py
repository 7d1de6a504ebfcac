"""A command as it can be judged: without the values that come later, and without those that no server can mean."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from perilune.errors import UnusableInput
from perilune.plan.commandline.occurrences import Occurrence, find_option
from perilune.plan.rules.releases import translated
from perilune.plan.server import Server

T = TypeVar("T")
_LATER = re.compile(r"\$|\{\{|<[^<>]*>")  # a value that stands for another one
_NUMBERS = frozenset({"int", "float", "human_readable_int", "json", "json_list", "graph_backend", "graph_config"})
_OF_A_KIND = frozenset({"--device"})  # choices that depend on the platform
_NAMES_A_FILE = frozenset({"--model-path", "--speculative-draft-model-path", "--config"})


@dataclass(frozen=True, slots=True)
class Absurd:
    """A value that the parser reads and no server can mean. `name` is its flag or variable, `why` a sentence."""

    name: str
    value: str
    why: str


def settled(server: Server, engine: str) -> tuple[Server, tuple[str, ...]]:
    """The command with old spellings of `engine` as today's, without the flags of unknown value, and their names."""
    server = translated(server, engine)
    later = [flag for flag in server.flags if _stands_for_another(flag)]
    for flag in later:
        server = server.unset(flag.name)
    return server, tuple(dict.fromkeys(flag.name for flag in later))


def _stands_for_another(flag: Occurrence) -> bool:
    option = flag.option
    if option is None or not any(_LATER.search(value) for value in flag.values):
        return False
    return bool(option.type in _NUMBERS or option.choices or option.name in _NAMES_A_FILE)


def without_absurd(server: Server, read: Callable[[Server], T]) -> tuple[Server, T, tuple[Absurd, ...]]:
    """What `read` makes of the command, the absurd values it stopped at left out one by one.

    Raises UnusableInput where `read` stops at anything else.
    """
    found: list[Absurd] = []
    while True:
        try:
            return server, read(server), tuple(found)
        except UnusableInput as error:
            absurd = _absurd(server, error)
            if absurd is None:
                raise
            found.append(absurd)
            server = leave_out(server, absurd.name)


def leave_out(server: Server, name: str) -> Server:
    """The command without a flag or a variable."""
    return server.unset(name) if name.startswith("-") else server.with_env({name: None})


def _absurd(server: Server, error: UnusableInput) -> Absurd | None:
    """The value that an error is about; of several that it names, the largest."""
    named = [name.partition("[")[0] for name in (error.where or "").split(", ")]
    options = [option for name in named if (option := find_option(name))]
    flags = [(o.name, server.value(o.name)) for o in options if o.type in _NUMBERS or o.name in _OF_A_KIND]
    variables = [(name, server.environment.get(name)) for name in named if not name.startswith("-")]
    written = [Absurd(name, value, error.message) for name, value in (*flags, *variables) if value is not None]
    return max(written, key=lambda one: _size(one.value), default=None)


def _size(text: str) -> float:
    try:
        number = abs(float(text))
    except ValueError:
        return 0.0
    return math.inf if math.isnan(number) else number
