"""Findings that the nodes of one server share, said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perilune.plan.rules import Finding
from perilune.plan.rules.pools import pools
from perilune.plan.rules.ranks import RANK
from perilune.plan.server import Server
from perilune.plan.sources.together import Together

if TYPE_CHECKING:
    from perilune.plan.sources.judge import Judged


def nodes_of(servers: Sequence[Judged], together: Together) -> list[list[int]]:
    """The numbers of servers that are nodes of one another, each in one list at most."""
    found: list[list[int]] = []
    taken: set[int] = set()
    for group in together.groups:
        for pool in pools([servers[index].subject for index in group]):
            numbers = [group[at] for at in pool if group[at] not in taken]
            taken.update(numbers)
            found += [numbers] if len(numbers) > 1 else []
        alike: dict[Server, list[int]] = {}
        for index in group:
            if index not in taken and servers[index].found.server.has("--nnodes"):
                alike.setdefault(servers[index].found.server.unset(RANK), []).append(index)
        for numbers in alike.values():  # nodes of which the engine's parser reads nothing
            taken.update(numbers)
            found += [numbers] if len(numbers) > 1 else []
    return found


def folded(findings: Sequence[Sequence[Finding]], nodes: Sequence[Sequence[int]]) -> list[Finding]:
    """The findings of every server in order; what several nodes share stands at the first, with their number."""
    kept = [list(own) for own in findings]
    for numbers in nodes:
        places: dict[Finding, list[int]] = {}
        for number in sorted(numbers):
            for plain in dict.fromkeys(map(_plain, findings[number])):
                places.setdefault(plain, []).append(number)
        for number in numbers:
            kept[number] = [
                _said_of(finding, len(at)) if len(at) > 1 else finding
                for finding in findings[number]
                if (at := places[_plain(finding)])[0] == number
            ]
    return [finding for own in kept for finding in own]


def _plain(finding: Finding) -> Finding:
    """The finding wherever it is, and however the document calls the node."""
    return replace(finding, where=None, pool="")


def _said_of(finding: Finding, nodes: int) -> Finding:
    return replace(finding, message=f"{finding.message} The same on {nodes} nodes.")
