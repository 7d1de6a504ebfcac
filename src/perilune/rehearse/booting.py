"""Whether a plan boots, why not, and the nearest plan that does."""

from __future__ import annotations

from collections.abc import Mapping

from perilune.plan.planned import Plan, PlannedPool, plan


def no_boot(planned: Plan) -> str | None:
    """Why a pool would not boot, and what would help; None when all pools boot."""
    for item in planned.pools:
        found = item.ledger
        if not found.boots:
            error = str(found.error or found.load_error or found.allocation_error).rstrip(".")
            return f"The {item.pool.role} pool would not boot: {error}.{_remedy(item)}"
    return None


def _remedy(item: PlannedPool) -> str:
    """What would help: the variant that boots, else what the finding advises."""
    if item.correction is not None:
        return f" A variant boots, and --corrected takes it: {'; '.join(item.correction.edits)}."
    advised = next((finding.fix for finding in item.findings if finding.severity == "error"), "")
    return f" {advised}" if advised else ""


def corrected(planned: Plan) -> tuple[Plan, Mapping[str, str]]:
    """The plan with every pool that would not boot in its variant that does, and the edits by role.

    A plan that boots, or of which no pool has such a variant, is the same plan.
    """
    edits: dict[str, str] = {
        item.pool.role: "; ".join(item.correction.edits) for item in planned.pools if item.correction
    }
    return (plan(planned.corrected), edits) if edits else (planned, {})
