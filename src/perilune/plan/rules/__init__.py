"""Findings: what will fail, what is rewritten, what costs capacity, and how to fix it."""

from __future__ import annotations

from perilune.plan.deployment import Pool, Workload
from perilune.plan.memory import Ledger, Measured
from perilune.plan.rules import basic
from perilune.plan.rules.corrections import Correction, correct
from perilune.plan.rules.finding import Finding, by_severity
from perilune.plan.server import Server

__all__ = ["Correction", "Finding", "by_severity", "correct", "pool_findings"]


def pool_findings(
    pool: Pool, server: Server, found: Ledger, workload: Workload, measured: Measured | None = None
) -> list[Finding]:
    """Everything to say of one pool: `server` is its head's command, `found` that command's ledger."""
    rules = (
        basic.refused(server, found),
        basic.rewritten(server, found),
        basic.request_limit(found),
        basic.concurrency(server, found, workload, measured),
        basic.boot_warnings(found),
        basic.stale_environment(server),
        basic.unpublished(pool),
    )
    return by_severity([finding for rule in rules for finding in rule])
