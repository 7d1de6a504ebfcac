"""A command under composition: flags in order, and the edits that recipes need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perilune.errors import UnusableInput

HOST = "--host"

_WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with its values, in the canonical spelling."""

    name: str
    values: tuple[str, ...] = ()


Flags = tuple[Flag, ...]


def parse(tokens: Iterable[str]) -> Flags:
    """Group command words into flags. A `<flag ...>` placeholder stands for a flag nobody published."""
    found: list[tuple[str, list[str]]] = []
    for token in tokens:
        if token.startswith(("--", "<flag ")):
            found.append((token, []))
        else:
            found[-1][1].append(token)
    return tuple(Flag(name, tuple(values)) for name, values in found)


def flatten(flags: Flags) -> tuple[str, ...]:
    """The command words again; a value that looks like an option is joined to its flag with `=`."""
    tokens: list[str] = []
    for flag in flags:
        if len(flag.values) == 1 and flag.values[0].startswith("-") and not _is_number(flag.values[0]):
            tokens.append(f"{flag.name}={flag.values[0]}")
        else:
            tokens += [flag.name, *flag.values]
    return tuple(tokens)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def has(flags: Flags, name: str) -> bool:
    """Whether the flag is there."""
    return any(flag.name == name for flag in flags)


def value(flags: Flags, name: str) -> str | None:
    """The first value of the last flag of this name; None when it is absent or takes none."""
    return next((flag.values[0] for flag in reversed(flags) if flag.name == name and flag.values), None)


def number(flags: Flags, name: str, default: int) -> int:
    """The value of a flag as a whole number, `default` when absent; raises UnusableInput for others."""
    text = value(flags, name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text):
        raise UnusableInput(f"{text[:40]!r} is not a whole number below a billion.", where=name)
    return int(text)


def without(flags: Flags, names: Iterable[str]) -> Flags:
    """The flags without these names."""
    gone = frozenset(names)
    return tuple(flag for flag in flags if flag.name not in gone)


def replaced(flags: Flags, names: Iterable[str], added: Flags) -> tuple[Flags, Flags]:
    """Strip `names`; an added flag of the same name takes the old place. Returns flags and unplaced."""
    gone = frozenset(names)
    waiting = list(added)
    kept: list[Flag] = []
    for flag in flags:
        if flag.name not in gone:
            kept.append(flag)
            continue
        same = [new for new in waiting if new.name == flag.name]
        kept += same
        waiting = [new for new in waiting if new.name != flag.name]
    return tuple(kept), tuple(waiting)


def before_host(flags: Flags, added: Flags) -> Flags:
    """Insert right before `--host`, at the end without one."""
    at = next((i for i, flag in enumerate(flags) if flag.name == HOST), len(flags))
    return flags[:at] + added + flags[at:]


def after_first(flags: Flags, anchors: Sequence[str], added: Flags) -> Flags:
    """Insert after the first anchor of the list that is present, else before `--host`."""
    present = {flag.name: i for i, flag in enumerate(flags)}
    at = next((present[anchor] for anchor in anchors if anchor in present), None)
    return before_host(flags, added) if at is None else flags[: at + 1] + added + flags[at + 1 :]


def after_last(flags: Flags, anchors: Sequence[str], fallback: str, added: Flags) -> Flags:
    """Insert after the last flag that is one of `anchors`, else after `fallback`, else before `--host`."""
    at = max((i for i, flag in enumerate(flags) if flag.name in anchors), default=None)
    if at is None:
        return after_first(flags, (fallback,), added)
    return flags[: at + 1] + added + flags[at + 1 :]
