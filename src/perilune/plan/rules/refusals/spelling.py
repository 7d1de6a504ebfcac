"""Flags and values that this release does not have."""

from __future__ import annotations

import re
from difflib import get_close_matches

from perilune.facts.flags import closest_flag, renamed_flag, renames
from perilune.plan.commandline.occurrences import matching
from perilune.plan.memory import Ledger
from perilune.plan.rules.edits import apply_edits
from perilune.plan.rules.refusals.known import Known, known, refusal
from perilune.plan.rules.releases import renaming
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

REFUSED_VALUE = re.compile(r"argument (?P<names>\S+): invalid choice: '(?P<value>[^']*)'")
CLOSE, LONGEST = 0.75, 64


def _spell(server: Server, _: Ledger) -> Server:
    """Write today's name for each flag that is gone, and the nearest one for each that never was."""
    for flag in server.flags:
        if flag.option is not None:
            continue
        rename = renamed_flag(flag.spelled)
        if rename is not None and rename.status == "gone":
            server = apply_edits(server, renaming(rename, flag.spelled))
            continue
        near = closest_flag(flag.spelled)
        if near is not None and not matching(flag.spelled):
            server = _renamed(server, flag.position, flag.spelled, near)
    return server


def _in_full(server: Server, found: Ledger) -> Server:
    """Write out each beginning of several flags, where just one of them takes what follows it."""
    for flag in server.flags:
        if flag.option is not None:
            continue
        written = [_renamed(server, flag.position, flag.spelled, name) for name in matching(flag.spelled)]
        taken = [tried for tried in written if refusal(sized(tried, found)) != refusal(found) and _parsed(tried, found)]
        server = taken[0] if len(taken) == 1 else server
    return server


def _renamed(server: Server, position: int, spelled: str, name: str) -> Server:
    words = list(server.argv)
    words[position] = words[position].replace(spelled, name, 1)
    return Server(tuple(words), server.env, server.program, server.wrapper)


def _parsed(server: Server, found: Ledger) -> bool:
    return sized(server, found).error_stage != "parse"


def _today(server: Server, found: Ledger) -> Server:
    """Write today's value for the one that was renamed, of the flag that the text names."""
    for rename in renames().values:
        if rename.flag and rename.status == "gone" and server.value(rename.flag) == rename.old:
            after = server.set(rename.flag, rename.to)
            if refusal(sized(after, found)) != refusal(found):
                return after
    return server


def _nearest(server: Server, found: Ledger) -> Server:
    """The value that was most likely meant, where what is written is close to just one that the flag takes."""
    match = REFUSED_VALUE.search(refusal(found))
    if match is None:
        return server
    for flag in server.flags:
        if flag.option is None or not flag.option.choices or match["value"] not in flag.values:
            continue
        if flag.spelled in match["names"].split("/") or flag.name in match["names"].split("/"):
            near = closest_value(match["value"], [str(choice) for choice in flag.option.choices])
            values = [near if value == match["value"] and near else value for value in flag.values]
            return server if near is None else server.set(flag.name, values)
    return server


def closest_value(written: str, choices: list[str]) -> str | None:
    """The choice that differs in case, dashes or blanks alone, else by a slip of the pen; None where none is near."""
    plain = {_plain(choice): choice for choice in choices}
    if _plain(written) in plain:
        return plain[_plain(written)]
    near = get_close_matches(_plain(written), plain, 1, CLOSE)
    return plain[near[0]] if near else None


def _plain(text: str) -> str:
    return text[:LONGEST].lower().replace("-", "_").replace(" ", "_")


SPELLING: tuple[Known, ...] = (
    known(
        "flag-gone",
        r"ambiguous option",
        "Several flags begin like it.",
        "write the flag in full",
        _in_full,
    ),
    known(
        "flag-gone",
        r"unrecognized arguments|ambiguous option",
        "This release does not have the flag.",
        "write today's name of the flag",
        _spell,
    ),
    known(
        "flag-value",
        r"invalid choice|was removed; select",
        "The flag does not take this value.",
        "write today's value",
        _today,
    ),
    known(
        "flag-value",
        r"invalid choice",
        "The flag does not take this value.",
        "write the nearest value that the flag takes",
        _nearest,
    ),
)
