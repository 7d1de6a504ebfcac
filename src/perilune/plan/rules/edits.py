"""Changes to a command that a machine can make, one flag or variable each."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from perilune.plan.server import Server

Action = Literal["set", "unset", "rename", "env", "unset-env"]


@dataclass(frozen=True, slots=True)
class Edit:
    """`set` writes a flag (a `value` of None makes it a switch, several values are separated by blanks),
    `unset` removes one, `rename` keeps the values of a flag as spelled and writes `value` for its name,
    `env` sets a variable and `unset-env` removes one.
    """

    action: Action
    name: str
    value: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The edit as plain data."""
        return {"action": self.action, "name": self.name, "value": self.value}

    @property
    def written(self) -> str:
        """What is written, or the name of what is removed."""
        match self.action:
            case "set":
                return self.name if self.value is None else f"{self.name} {self.value}"
            case "rename":
                return f"{self.value} for {self.name}"
            case "env":
                return f"{self.name}={self.value}"
        return self.name


VERBS: dict[Action, str] = {"set": "write", "rename": "write", "env": "set", "unset": "remove", "unset-env": "remove"}


def in_words(edits: Iterable[Edit]) -> str:
    """Edits as a clause: what is written stands together, to be copied."""
    parts = []
    for action, group in groupby(edits, key=lambda edit: edit.action):
        texts = [edit.written for edit in group]
        copied = action in ("set", "env") or len(texts) == 1
        together = " ".join(texts) if copied else f"{', '.join(texts[:-1])} and {texts[-1]}"
        parts.append(f"{VERBS[action]} {together}")
    return ", ".join(parts)


def begun(edits: Iterable[Edit]) -> str:
    """Edits as the beginning of a sentence; empty without any."""
    text = in_words(edits)
    return text[:1].upper() + text[1:]


def write(flag: str, value: object = None) -> Edit:
    """Write `flag` with `value`, or as a switch."""
    return Edit("set", flag, None if value is None else str(value))


def remove(*flags: str) -> tuple[Edit, ...]:
    """Remove every one of `flags`."""
    return tuple(Edit("unset", flag) for flag in flags)


def apply_edits(server: Server, edits: Iterable[Edit]) -> Server:
    """The server with every edit made, in order."""
    for edit in edits:
        server = _apply(server, edit)
    return server


def _apply(server: Server, edit: Edit) -> Server:
    match edit.action:
        case "set":
            return server.set(edit.name, None if edit.value is None else shlex.split(edit.value))
        case "unset":
            return server.unset(edit.name)
        case "rename":
            return _rename(server, edit.name, edit.value or "")
        case "env":
            return server.with_env({edit.name: edit.value})
    return server.with_env({edit.name: None})


def _rename(server: Server, spelled: str, name: str) -> Server:
    words = list(server.argv)
    for found in reversed(server.flags):
        if found.spelled == spelled:
            words[found.position : found.end] = [name, *found.values]
    return replace(server, argv=tuple(words))


def edits_between(before: Server, after: Server) -> tuple[Edit, ...]:
    """The edits that turn one command into another: flags in the order they stand, then variables."""
    old, new = _written(before), _written(after)
    found = [Edit("unset", name) for name in old if name not in new]
    found += [
        Edit("set", name, shlex.join(values) if values else None)
        for name, values in new.items()
        if old.get(name) != values
    ]
    env, later = before.environment, after.environment
    found += [Edit("unset-env", name) for name in env if name not in later]
    found += [Edit("env", name, text) for name, text in later.items() if env.get(name) != text]
    return tuple(found)


def _written(server: Server) -> dict[str, tuple[str, ...]]:
    return {flag.name: flag.values for flag in server.flags}
