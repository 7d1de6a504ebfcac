"""What to try when no class fits: leave out what the text names, or the one flag without which the server starts."""

from __future__ import annotations

import re

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.known import Known, known, refusal
from perilune.plan.rules.refusals.remedies import TP, leave_out, whole_nodes
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

KEPT = frozenset({"--model-path", TP, "--disaggregation-mode"})
MOST_TRIED = 64  # flags left out in turn
ARGUMENTS = frozenset({"parse", "resolve", "check", "groups"})  # stages before memory


def remove_named(server: Server, found: Ledger) -> Server:
    """The command without the first flag that the error names, other than those that are kept, if that helps."""
    error = refusal(found)
    for flag in server.flags:
        if flag.name in KEPT or not {flag.name, flag.spelled, flag.name[2:].replace("-", "_")} & words_of(error):
            continue
        tried = leave_out(server, flag.name)
        if refusal(sized(tried, found)) != error:
            return tried
    return server


def size_named(server: Server, found: Ledger) -> Server:
    """The command with all accelerators of its nodes for the TP size, if the error is about that."""
    return whole_nodes(server, found) if TP in words_of(refusal(found)) else server


def remove_one(server: Server, found: Ledger) -> Server:
    """The command without the one flag that keeps it from starting or, where there is none, that it is refused for."""
    error, past = refusal(found), server
    for name in list(dict.fromkeys(flag.name for flag in server.flags if flag.name not in KEPT))[-MOST_TRIED:]:
        tried = leave_out(server, name)
        after = sized(tried, found)
        if after.boots:
            return tried
        if past == server and refusal(after) != error:
            past = tried
    return past


def words_of(error: str) -> frozenset[str]:
    """The flags and fields that a text names."""
    return frozenset(re.findall(r"-{0,2}[a-z][a-z0-9_-]+", error))


def _before_memory(found: Ledger) -> bool:
    return found.error_stage in ARGUMENTS


FALLBACK: tuple[Known, ...] = (
    known("engine-refuses", r"", "", "remove what the text names", remove_named, (), _before_memory),
    known("engine-refuses", r"", "", "write a whole --tp-size", size_named, (), _before_memory),
    known("engine-refuses", r"", "", "leave out the flag that keeps it from starting", remove_one, (), _before_memory),
)
