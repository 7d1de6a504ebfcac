"""Findings: what will fail, what is rewritten, what costs capacity, and how to fix it."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.plan.deployment import Pool, Workload
from perilune.plan.memory import Ledger, Measured
from perilune.plan.rules import (
    agreement,
    amd,
    ascend,
    backends,
    capacity,
    dcp,
    earlier,
    engine,
    environment,
    fleet,
    headroom,
    hicache,
    images,
    layouts,
    network,
    pairing,
    parallelism,
    parsers,
    pins,
    pools,
    ports,
    presets,
    ranks,
    roles,
    routing,
    speculation,
    state,
    values,
    versions,
    vision,
)
from perilune.plan.rules.composed import unpublished
from perilune.plan.rules.corrections import Correction, correct
from perilune.plan.rules.edits import Edit, apply_edits
from perilune.plan.rules.finding import Finding, Where, by_severity
from perilune.plan.rules.subject import Subject, subject_of
from perilune.plan.server import Server

__all__ = [
    "FLEET_RULES",
    "GROUPS",
    "PAIR_RULES",
    "Correction",
    "Edit",
    "Finding",
    "Subject",
    "Where",
    "apply_edits",
    "by_severity",
    "composed_subject",
    "correct",
    "findings_of",
    "fleet_findings",
    "pair_findings",
    "subject_of",
]

GROUPS = {
    "What the engine refuses and changes": engine.RULES,
    "Values": values.RULES,
    "Capacity": (*capacity.RULES, *pins.RULES, *headroom.RULES),
    "Parallelism": parallelism.RULES,
    "Nodes": ranks.RULES,
    "Speculation": speculation.RULES,
    "State pool": state.RULES,
    "PD roles": roles.RULES,
    "Attention and MoE backends": backends.RULES,
    "DCP": dcp.RULES,
    "HiCache": hicache.RULES,
    "Vision": vision.RULES,
    "Reasoning and tool calls": parsers.RULES,
    "Presets": presets.RULES,
    "AMD": amd.RULES,
    "Ascend": ascend.RULES,
    "Network": network.RULES,
    "Environment and spelling": environment.RULES,
    "Releases": (*versions.RULES, *earlier.RULES),
    "Images": images.RULES,
    "Ports": ports.RULES,
    "Composed commands": (unpublished,),
}
PAIR_RULES = (*pairing.RULES, *agreement.RULES, *layouts.RULES, *routing.RULES)
FLEET_RULES = (*fleet.RULES, *pools.RULES)


def findings_of(subject: Subject) -> list[Finding]:
    """Everything to say of one server, the worst first."""
    rules = [one for group in GROUPS.values() for one in group if one.holds_for(subject.engine)]
    return by_severity(finding for one in rules for finding in one(subject))


def pair_findings(prefill: Subject, decode: Subject, router: Sequence[str] | None = None) -> list[Finding]:
    """What only the two roles together show. `router` is the router's argument list, None when unknown."""
    rules = [one for one in PAIR_RULES if one.holds_for(decode.engine)]
    return by_severity(finding for one in rules for finding in one(prefill, decode, router))


def fleet_findings(subjects: Sequence[Subject]) -> list[Finding]:
    """What only several servers together show: `subjects` are servers that run at the same time."""
    return by_severity(finding for one in FLEET_RULES for finding in one(subjects))


def composed_subject(
    pool: Pool, server: Server, found: Ledger, workload: Workload, measured: Measured | None = None
) -> Subject:
    """A composed pool as rules look at it: `server` is its head's command, `found` that command's ledger."""
    return Subject(
        server,
        found.resolved,
        found,
        workload,
        measured,
        image=pool.image or None,
        unpublished=pool.unpublished,
        template=True,
    )
