"""Edits that get past a refusal, of a server and the ledger that refuses it."""

from __future__ import annotations

from collections.abc import Callable

from perilune.plan.memory import Ledger
from perilune.plan.rules.families import LEADERS
from perilune.plan.rules.subject import whole
from perilune.plan.server import Server

TP = "--tp-size"
MOST_RANKS = 4096
Remedy = Callable[[Server, Ledger], Server]


def write(flag: str, value: str | None = None) -> Remedy:
    """Write a flag."""
    return lambda server, _: server.set(flag, value)


def unset(*flags: str) -> Remedy:
    """Remove flags."""

    def edit(server: Server, _: Ledger) -> Server:
        for flag in flags:
            server = server.unset(flag)
        return server

    return edit


def leave_out(server: Server, name: str) -> Server:
    """The command without a flag, and without those that mean nothing beside it missing."""
    led = LEADERS.get(name, ())
    for flag in server.flags:
        if flag.name == name or (led and flag.name.startswith(led)):
            server = server.unset(flag.name)
    return server


def unset_env(name: str) -> Remedy:
    """Remove a variable."""
    return lambda server, _: server.with_env({name: None})


def then(*remedies: Remedy) -> Remedy:
    """One remedy after the other."""

    def edit(server: Server, found: Ledger) -> Server:
        for remedy in remedies:
            server = remedy(server, found)
        return server

    return edit


def nearest_divisor(flag: str, of: str) -> Remedy:
    """The largest value of `flag`, not above the present one, that divides the field `of`."""

    def edit(server: Server, found: Ledger) -> Server:
        total = int(found.resolved[of] or 1)
        present = server.value(flag) or "1"
        size = whole(present) or 1
        best = next((n for n in range(min(size, total, MOST_RANKS), 0, -1) if total % n == 0), 1)
        return server.unset(flag) if best == 1 else server.set(flag, best)

    return edit


def whole_nodes(server: Server, found: Ledger) -> Server:
    """All accelerators of the server's nodes for the TP size, divided among its pipeline stages."""
    nodes, stages = whole(server.value("--nnodes")) or 1, whole(server.value("--pp-size")) or 1
    size = found.resolved.platform.gpus_per_node * nodes // stages
    return server.set(TP, size) if size else server


def attention_groups(server: Server, size: int) -> Server:
    """So many groups of attention DP, whichever spelling asks for more; one is none, nor what goes with several."""
    if server.has("--enable-dp-attention"):
        server = server.unset("--enable-dp-attention").unset("--dp-size")
    return leave_out(server, "--attn-dp-size") if size == 1 else server.set("--attn-dp-size", size)
