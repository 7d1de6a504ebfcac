"""Memory besides the pools: what verification keeps, and what is left for graphs and activations."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.memory import NoticeKind
from perilune.plan.memory.notices import LEAST_HEADROOM_BYTES
from perilune.plan.memory.pools import GIB
from perilune.plan.rules.edits import Edit, begun, write
from perilune.plan.rules.finding import Severity
from perilune.plan.rules.rule import Says, rule
from perilune.plan.rules.splitting import running
from perilune.plan.rules.subject import Subject

LARGE_SCRATCH = 0.25  # of the memory for both pools
SAID = frozenset({NoticeKind.OVERCOMMITTED, NoticeKind.HEADROOM})


@rule("spec-scratch", "capacity")
def scratch(s: Subject) -> Iterator[Says]:
    """Without ReplaySSM, verification keeps one state per draft token of every running request."""
    found, inputs, sizing = s.ledger, s.ledger.inputs, s.ledger.sizing
    if inputs is None or sizing is None or not found.stages or not inputs.draft_tokens:
        return
    stage = max(found.stages, key=lambda one: one.allocated.step_ssm if one.allocated else 0)
    if stage.allocated is None or stage.allocated.step_ssm < LARGE_SCRATCH * sizing.rest_gib * GIB:
        return
    rows = stage.allocated.verified_rows + 1
    edits: tuple[Edit, ...] = (write("--enable-linear-replayssm-spec"),)
    if not s.again(edits).boots:
        edits = ()
    yield Says(
        f"Verification keeps {rows} x {inputs.draft_tokens} x {inputs.slot_bytes / (1 << 20):.0f} MiB = "
        f"{stage.allocated.step_ssm / GIB:.1f} GiB of states per GPU, of {sizing.rest_gib:.1f} GiB for all pools.",
        "" if edits else "Lower --max-running-requests.",
        ("--enable-linear-replayssm-spec", "--max-running-requests"),
        edits,
        source=f"ledger ({found.basis})",
    )


@rule("memory-headroom", "capacity")
def headroom(s: Subject) -> Iterator[Says]:
    """The memory fraction leaves too little for graphs and activations: lower it, never raise it.

    A published command that keeps less than the engine's default does so on purpose, which is advice.
    """
    found, inputs, left = s.ledger, s.ledger.inputs, s.ledger.headroom_bytes
    said = next((notice.text for notice in found.notices if notice.kind in SAID), None)
    if said is None or left is None or inputs is None or not found.boots:
        return
    lower = inputs.fraction - max(LEAST_HEADROOM_BYTES - left, 0) / (inputs.before_gib * GIB)
    edits: tuple[Edit, ...] = (write("--mem-fraction-static", f"{int(lower * 100) / 100:.2f}"),)
    after = s.again(edits)
    now, then = running(found, s.workload)[0], running(after, s.workload)[0]
    fix = f"{begun(edits)}: then {then} requests run at once, not {now}." if then < now else ""
    if not after.boots:
        edits, fix = (), "Lower --cuda-graph-max-bs-decode or --max-running-requests."
    severity: Severity | None = "advice" if s.template and left >= 0 else None
    yield Says(
        said,
        fix,
        ("--mem-fraction-static",),
        edits,
        severity=severity,
        source=f"ledger ({found.basis})",
    )


RULES = (scratch, headroom)
