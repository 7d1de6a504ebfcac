"""A command in prose is the one that the catalog composes for the same cell."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from perilune.cookbook.lint.finding import PageFinding, at
from perilune.cookbook.lint.platforms import platforms_in, strategies_in
from perilune.cookbook.lint.shell import Command, commands
from perilune.cookbook.lint.source import Source
from perilune.errors import PeriluneError
from perilune.facts.hardware import platform
from perilune.facts.recipes import catalog
from perilune.plan.compose import Choice, compose
from perilune.plan.memory import ledger
from perilune.plan.resolve import resolve
from perilune.plan.rules import correct
from perilune.plan.server import Server

# Values that are the reader's own, or follow from a workload that the page does not name.
OWN = ("--mamba-full-memory-ratio", "--dist-init-addr", "--node-rank", "--host", "--max-running-requests")
OWN_VARIABLES = frozenset(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "SGLANG_HOST_IP"))
ROLES = {"prefill": "prefill", "decode": "decode"}


@dataclass(frozen=True)
class Named:
    """A cell that a command's surroundings name, and how the catalog's command is told apart."""

    choice: Choice
    label: str


def parity(source: Source) -> Iterator[PageFinding]:
    """Commands whose section names one platform and one strategy are held against the catalog."""
    for command in commands(source):
        server = command.server if command.serves else None
        if server is None or (named := cell_of(command, server)) is None:
            continue
        try:
            composed = compose(named.choice).pools[0].servers[0]
        except PeriluneError:
            continue
        accepted = [composed, *corrected(composed, named.choice.hardware)]
        if any(comparable(server, known) == comparable(known, known) for known in accepted):
            continue
        yield at(
            command.line,
            "parity",
            f"This is not the command that the catalog composes for {named.label}.",
            diff(server, accepted[-1]),
            source="recipe catalog",
        )


def cell_of(command: Command, server: Server) -> Named | None:
    """Return the cell that a command is for; None where its section does not name exactly one."""
    quants = {model: quant for quant, model in catalog().models.items()}
    quant = quants.get(server.value("--model-path") or "")
    places, strategies = platforms_in(command.fence.context), strategies_in(command.fence.context)
    if quant is None or len(places) != 1 or len(strategies) != 1:
        return None
    mode = ROLES.get(server.value("--disaggregation-mode") or "", "unified")
    algorithm = (server.value("--speculative-algorithm") or "none").lower()
    strategy = strategies[0]
    choice = Choice(
        hardware=places[0],
        mode=mode,
        strategy=None if mode == "prefill" else strategy,
        prefill_strategy=strategy if mode == "prefill" else None,
        quant=quant,
        spec=algorithm,
    )
    return Named(choice, f"{platform(places[0]).label}, {mode}, {strategy}")


def corrected(server: Server, hardware: str) -> list[Server]:
    """Return the command with what the engine refuses of it put right, where it refuses anything."""
    try:
        found = ledger(resolve(server, platform(hardware)))
    except PeriluneError:
        return []
    better = None if found.boots else correct(server, found)
    return [better.server] if better else []


def comparable(server: Server, catalog_server: Server) -> tuple[frozenset[tuple[str, ...]], frozenset[tuple[str, str]]]:
    """Return what two equal commands share: flags in any order and spelling, and variables.

    Left out is what is the reader's own: `OWN`, `OWN_VARIABLES`, and what the catalog leaves open.
    """
    own = OWN_VARIABLES | {name for name, value in catalog_server.environment.items() if "<" in value}
    flags = frozenset((flag.name, *flag.values) for flag in server.flags if flag.name not in OWN)
    return flags, frozenset((name, value) for name, value in server.environment.items() if name not in own)


def diff(written: Server, composed: Server) -> str:
    """Return the difference of two commands, one flag a line, with the reader's own values taken over."""
    for flag in OWN:
        value = written.value(flag)
        composed = composed.unset(flag) if value is None else composed.set(flag, value)
    before, after = (server.display(one_per_line=True).split("\n") for server in (written, composed))
    lines = difflib.unified_diff(before, after, "this page", "catalog", lineterm="", n=0)
    return "\n".join(lines)
