"""A deployment read through: what the engine makes of every pool, its ledger, its levers, the findings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from perilune.facts.hardware import platform
from perilune.facts.measurements import Published
from perilune.plan.deployment import NODE_RANK, Deployment, Pool, Unknown
from perilune.plan.memory import Ledger, Measured, ledger
from perilune.plan.memory.levers import Effect, try_levers
from perilune.plan.published import published_of_pool
from perilune.plan.resolve import resolve
from perilune.plan.resolve.state import Resolved
from perilune.plan.rules import (
    Correction,
    Finding,
    Subject,
    by_severity,
    composed_subject,
    correct,
    findings_of,
    fleet_findings,
    pair_findings,
)
from perilune.plan.server import Server

ENGINE = "SGLang 0.5.23"


@dataclass(frozen=True, eq=False)
class PlannedPool:
    """One pool with everything that follows from its command.

    `server` is the head's command, with the assumed value where none was ever published.
    """

    pool: Pool
    server: Server
    resolved: Resolved
    ledger: Ledger
    measured: Measured | None
    subject: Subject

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is to be said of this pool alone."""
        return tuple(findings_of(self.subject))

    @cached_property
    def levers(self) -> tuple[Effect, ...]:
        """The page's capacity levers, each tried on this pool."""
        return try_levers(self.server, self.ledger, self.measured)

    @cached_property
    def correction(self) -> Correction | None:
        """A variant that boots, where this one does not and a known edit helps."""
        return None if self.ledger.boots else correct(self.server, self.ledger)

    def to_json(self) -> dict[str, Any]:
        """The pool of the contract: role, nodes, gpus, command as argv per node, env, memory."""
        pool, corrected = self.pool, self.correction
        return {
            "role": pool.role,
            "platform": pool.platform,
            "recipe": pool.recipe,
            "quant": pool.quant,
            "spec": pool.spec,
            "verification": pool.verification,
            "replicas": pool.replicas,
            "nodes": pool.nodes,
            "gpus": pool.gpus,
            "image": pool.image,
            "command": [[*server.program, *server.argv] for server in pool.servers],
            "env": dict(pool.server.env),
            "corrected": corrected
            and {
                "edits": list(corrected.edits),
                "command": [*corrected.server.program, *corrected.server.argv],
                "env": dict(corrected.server.env),
            },
            "memory": self.ledger.to_json(),
            "levers": [
                {
                    "lever": effect.lever.written,
                    "outcome": str(effect.outcome),
                    "admitted": [effect.before.admitted, effect.after.admitted],
                    "tokens": [effect.before.tokens, effect.after.tokens],
                    "why": effect.why,
                    "changes": list(effect.changes),
                }
                for effect in self.levers
            ],
            "published": [measured.to_json() for measured in self.published],
            "unpublished": [msgspec.to_builtins(unknown) for unknown in pool.unpublished],
            "hints": list(pool.hints),
            "notes": list(pool.notes),
        }

    @cached_property
    def published(self) -> tuple[Published, ...]:
        """What was measured of this command, or of one with other pool sizes: engine version, caveats, what differs."""
        return published_of_pool(self.pool) if self.pool.recipe else ()


@dataclass(frozen=True, eq=False)
class Plan:
    """A deployment and the reading of each of its pools."""

    deployment: Deployment
    pools: tuple[PlannedPool, ...]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the worst first: of each pool, of a pair together, of the fleet."""
        several = len(self.pools) > 1
        found = [f.on(p.pool.role) if several else f for p in self.pools for f in p.findings]
        subjects = {pool.pool.role: pool.subject for pool in self.pools}
        if "prefill" in subjects and "decode" in subjects:
            found += pair_findings(subjects["prefill"], subjects["decode"], self.deployment.router)
        if several:
            found += fleet_findings(list(subjects.values()))
        return tuple(by_severity(found))

    @property
    def corrected(self) -> Deployment:
        """The deployment with the variant that boots in place of every pool that would not and has one."""
        pools = tuple(_corrected(item) for item in self.pools)
        return replace(self.deployment, pools=pools)

    def to_json(self) -> dict[str, Any]:
        """The contract of `plan --json`, which `read_plan` reads back."""
        deployment, load = self.deployment, self.deployment.workload
        return {
            "perilune": 1,
            "engine": ENGINE,
            "model": deployment.model,
            "workload": {"isl": load.isl, "osl": load.osl, "concurrency": load.concurrency},
            "pools": [pool.to_json() for pool in self.pools],
            "router": None if deployment.router is None else list(deployment.router),
            "findings": [finding.to_json() for finding in self.findings],
            "hints": list(deployment.hints),
            "notes": list(deployment.notes),
            "sources": list(deployment.sources),
        }


def plan(deployment: Deployment, measured: Mapping[str, Measured] | None = None) -> Plan:
    """Read every pool of a deployment; `measured` holds boot-log figures by role where there are any."""
    return Plan(
        deployment,
        tuple(_planned(pool, deployment, (measured or {}).get(pool.role)) for pool in deployment.pools),
    )


def _planned(pool: Pool, deployment: Deployment, measured: Measured | None) -> PlannedPool:
    server = assumed(pool.servers[0], pool.unpublished)
    resolved = resolve(server, platform(pool.platform))
    found = ledger(resolved, measured)
    subject = composed_subject(pool, server, found, deployment.workload, measured)
    return PlannedPool(pool, server, resolved, found, measured, subject)


def _corrected(item: PlannedPool) -> Pool:
    if item.correction is None:
        return item.pool
    server = item.correction.server
    found = resolve(server, platform(item.pool.platform), model=item.resolved.model, draft=item.resolved.draft)
    replicas = 1 if found["enable_dp_attention"] else found["dp_size"]
    if found["nnodes"] > 1:
        server = server.set("--node-rank", NODE_RANK)
    return replace(
        item.pool,
        server=server,
        nodes=found["nnodes"],
        gpus=found["tp_size"] * found["pp_size"] * replicas,
        unpublished=(),
    )


def assumed(server: Server, unknowns: tuple[Unknown, ...]) -> Server:
    """`server` with the likely value in place of each placeholder that nobody published a value for."""
    for unknown in unknowns:
        words = list(server.argv)
        if unknown.placeholder not in words or not unknown.assume:
            continue
        at = words.index(unknown.placeholder)
        start = at - 1 if at and words[at - 1] == unknown.flag else at
        words[start : at + 1] = shlex.split(unknown.assume)
        server = replace(server, argv=tuple(words))
    return server
