"""Servers with the errors corrected that a machine can correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perilune.plan.rules import Finding, apply_edits, fleet_findings
from perilune.plan.rules.pools import pools
from perilune.plan.server import Server
from perilune.plan.sources.judge import Judge, Judged, Routers, pair_of
from perilune.plan.sources.together import Together

ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Made:
    """The edits of one finding, made on one server: its number among those that were given."""

    number: int
    finding: Finding


@dataclass(frozen=True, slots=True)
class Corrected:
    """The servers in the order they were given, and what was changed in them, in the order it was."""

    servers: tuple[Server, ...]
    made: tuple[Made, ...]


def corrected(judge: Judge, servers: Sequence[Judged], routers: Routers = ()) -> Corrected:
    """The servers with their errors corrected, each and as pairs."""
    made: list[Made] = []
    now = [_alone(judge, at, one, made) for at, one in enumerate(servers)]
    for _ in range(ROUNDS):
        before = [one.found.server for one in now]
        for p, d in Together(now).pairs:
            for finding in pair_of(now[p], now[d], routers):
                if finding.severity == "error" and finding.edits:
                    for at in _nodes(now, d if finding.pool == "decode" else p):
                        now[at] = _alone(judge, at, _edited(judge, at, now[at], finding, made), made)
                    break
        for group in Together(now).groups:
            for finding in fleet_findings([now[index].subject for index in group]):
                if finding.severity == "error" and finding.edits and finding.member is not None:
                    at = group[finding.member]
                    now[at] = _alone(judge, at, _edited(judge, at, now[at], finding, made), made)
        if before == [one.found.server for one in now]:
            break
    return Corrected(tuple(one.found.server for one in now), tuple(made))


def _nodes(servers: Sequence[Judged], head: int) -> list[int]:
    """The server and those that are nodes of it: what changes on one node changes on all."""
    beside = sorted({index for group in Together(servers).groups if head in group for index in group} | {head})
    mine = beside.index(head)
    pool = next((pool for pool in pools([servers[index].subject for index in beside]) if mine in pool), [mine])
    return [beside[at] for at in pool]


def _alone(judge: Judge, at: int, one: Judged, made: list[Made]) -> Judged:
    for _ in range(ROUNDS):
        errors = [finding for finding in one.findings if finding.severity == "error" and finding.edits]
        tried = (_edited(judge, at, one, finding, made) for finding in errors)
        better = next((other for other in tried if other.found.server != one.found.server), None)
        if better is None:
            return one
        one = better
    return one


def _edited(judge: Judge, at: int, one: Judged, finding: Finding, made: list[Made]) -> Judged:
    """The server after a finding's edits, which are noted where they change it."""
    after = judge.again(one, apply_edits(one.found.server, finding.edits)) or one
    if after.found.server != one.found.server:
        made.append(Made(at, finding))
    return after
