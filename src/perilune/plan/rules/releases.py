"""Old spellings that an asked SGLang release still takes, read as today's."""

from __future__ import annotations

from perilune.facts.flags import Rename, renames
from perilune.facts.history import JUDGED, history, release
from perilune.plan.rules.edits import Edit, apply_edits
from perilune.plan.server import Server


def still_takes(engine: str, spelled: str) -> bool:
    """Whether the release `engine` still takes a flag that is gone today."""
    return _until(engine, history().options_until.get(spelled))


def still_reads(engine: str, name: str) -> bool:
    """Whether the release `engine` still reads a variable that is gone today."""
    return _until(engine, history().environment_until.get(name))


def lacks_flag(engine: str, flag: str) -> str | None:
    """The release a flag came with, when that is after `engine`."""
    return _since(engine, history().options_since.get(flag))


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


def translated(server: Server, engine: str) -> Server:
    """The command in today's spelling, where `engine` takes an older one."""
    if engine == JUDGED:
        return server
    old = {rename.old: rename for rename in renames().flags if rename.status == "gone"}
    for flag in server.flags:
        rename = old.get(flag.spelled)
        if rename is not None and still_takes(engine, flag.spelled):
            server = apply_edits(server, renaming(rename, flag.spelled))
    return server
