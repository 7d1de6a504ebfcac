"""Flags and values that this release does not have."""

from __future__ import annotations

from perilune.facts.flags import closest_flag, renamed_flag, renames
from perilune.plan.commandline.occurrences import matching
from perilune.plan.memory import Ledger
from perilune.plan.rules.edits import apply_edits
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.releases import renaming
from perilune.plan.server import Server


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
            words = list(server.argv)
            words[flag.position] = words[flag.position].replace(flag.spelled, near, 1)
            server = Server(tuple(words), server.env, server.program, server.wrapper)
    return server


def _today(server: Server, _: Ledger) -> Server:
    """Write today's value for each one that was renamed."""
    for rename in renames().values:
        if rename.flag and rename.status == "gone" and server.value(rename.flag) == rename.old:
            server = server.set(rename.flag, rename.to)
    return server


SPELLING: tuple[Known, ...] = (
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
)
