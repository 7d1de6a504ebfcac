"""Spellings of other SGLang releases: which one takes what, and how each is written for another."""

from __future__ import annotations

from perilune.facts.flags import Rename, renames
from perilune.facts.history import JUDGED, history, release
from perilune.plan.commandline.occurrences import Occurrence
from perilune.plan.rules.edits import Edit, apply_edits, write
from perilune.plan.server import Server


def still_takes(engine: str, spelled: str) -> bool:
    """Whether the release `engine` still takes a flag that is gone today."""
    return _until(engine, history().options_until.get(spelled))


def still_reads(engine: str, name: str) -> bool:
    """Whether the release `engine` still reads a variable that is gone today."""
    return _until(engine, history().environment_until.get(name)) and lacks_variable(engine, name) is None


def lacks_flag(engine: str, flag: str) -> str | None:
    """The release a flag came with, when that is after `engine`."""
    return _since(engine, history().options_since.get(flag))


def spelled_before(engine: str, flag: Occurrence) -> tuple[Edit, ...]:
    """The edits that write a flag as a release without it takes it, or leave it out."""
    known = lacks_flag(engine, flag.name) is None  # by another name
    old = history().options_before.get(flag.spelled if known else flag.name, ())
    if not old:
        return (Edit("unset", flag.name),)
    if known:
        return (Edit("rename", flag.spelled, old[0]),)
    first, *switches = old
    return (
        Edit("unset", flag.name),
        Edit("set", first, " ".join(flag.values) or None),
        *(Edit("set", one) for one in switches),
    )


def lacks_variable(engine: str, name: str) -> str | None:
    """The release a variable came with, when that is after `engine`."""
    return _since(engine, history().environment_since.get(name))


def before(engine: str, version: str) -> bool:
    """Whether `engine` is a release older than `version`; an unreadable one is not."""
    asked, other = release(engine), release(version)
    return asked is not None and other is not None and asked < other


def _until(engine: str, last: str | None) -> bool:
    return last is not None and release(engine) is not None and not before(last, engine)


def _since(engine: str, first: str | None) -> str | None:
    return first if first is not None and before(engine, first) else None


def renaming(rename: Rename, spelled: str) -> tuple[Edit, ...]:
    """The edits that replace a spelling that is gone."""
    if not rename.to:
        return (Edit("unset", spelled),)
    flags = _flags_of(rename.to)
    if len(flags) == 1 and flags[0][1] is None:
        return (Edit("rename", spelled, flags[0][0]),)
    return (Edit("unset", spelled), *(Edit("set", name, value) for name, value in flags))


def _flags_of(text: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for word in text.split():
        if word.startswith("--"):
            found.append((word, None))
        elif found:
            found[-1] = (found[-1][0], word)
    return found


def switched_on(text: str | None) -> bool:
    """Whether the value of a variable turns a switch on."""
    return (text or "").strip().lower() in ("1", "true", "yes", "y", "on")


def moved(server: Server, rename: Rename) -> tuple[Edit, ...]:
    """The edits that write what stands for a variable today, keeping its value."""
    gone, to = Edit("unset-env", rename.old), rename.to
    if not to:
        return (gone,)
    if not to.startswith("--"):
        value = server.environment.get(rename.old)
        return (gone, *(() if to in server.environment else (Edit("env", to, value),)))
    flag, _, value = to.partition(" ")
    if server.has(flag) or not switched_on(server.environment.get(rename.old)):
        return (gone,)
    return (gone, write(flag, value or None))


def translated(server: Server, engine: str) -> Server:
    """The command with today's flags and variables, where `engine` takes older ones."""
    if engine == JUDGED:
        return server
    old = {rename.old: rename for rename in renames().flags if rename.status == "gone"}
    for flag in server.flags:
        rename = old.get(flag.spelled)
        if rename is not None and still_takes(engine, flag.spelled):
            server = apply_edits(server, renaming(rename, flag.spelled))
    for rename in renames().environment:
        if rename.old in server.environment and still_reads(engine, rename.old):
            server = apply_edits(server, moved(server, rename))
    return server
