"""What to try when no class fits: leave out what the text names."""

from __future__ import annotations

import re

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.known import Known, known, refusal
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

KEPT = frozenset({"--model-path", "--tp-size"})


def remove_named(server: Server, found: Ledger) -> Server:
    """The command without the first flag that the error names, other than the model and the TP size, if that helps."""
    error = refusal(found)
    for flag in server.flags:
        if flag.name in KEPT or not {flag.name, flag.spelled, flag.name[2:].replace("-", "_")} & words_of(error):
            continue
        tried = server.unset(flag.name)
        if refusal(sized(tried, found)) != error:
            return tried
    return server


def words_of(error: str) -> frozenset[str]:
    """The flags and fields that a text names."""
    return frozenset(re.findall(r"-{0,2}[a-z][a-z0-9_-]+", error))


def _before_memory(found: Ledger) -> bool:
    return found.error_stage in ("parse", "resolve", "check")


FALLBACK: tuple[Known, ...] = (
    known("engine-refuses", r"", "", "remove what the text names", remove_named, (), _before_memory),
)
