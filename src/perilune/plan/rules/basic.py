"""Findings that follow from one server's resolution and ledger."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.facts.flags import renames
from perilune.plan.deployment import Pool, Workload
from perilune.plan.memory import Demand, Ledger, Measured
from perilune.plan.memory.levers import advise
from perilune.plan.resolve import resolve
from perilune.plan.resolve.state import Rewrite
from perilune.plan.rules.corrections import correct
from perilune.plan.rules.finding import Finding
from perilune.plan.server import Server

ENGINE = "SGLang 0.5.23"


def refused(server: Server, found: Ledger) -> Iterator[Finding]:
    """The engine does not boot with this command."""
    if found.boots:
        return
    error = found.error or found.allocation_error or ""
    better = correct(server, found)
    yield Finding(
        "engine-refuses",
        "error",
        f"The engine does not start with this command: {error}",
        "; ".join(better.edits) if better else "",
        source=f"{ENGINE}, {found.error_stage or 'pools'} stage",
    )


def rewritten(server: Server, found: Ledger) -> Iterator[Finding]:
    """The engine changes what was written."""
    last = {r.field: r for r in found.resolved.rewrites if r.field in found.resolved.given}
    for rewrite in last.values():
        flag = "--" + rewrite.field.replace("_", "-")
        yield Finding(
            "rewritten",
            "rewrite",
            f"The engine changes {flag} from {_shown(rewrite.before)} to {_shown(rewrite.after)}: {rewrite.reason}",
            f"Write {flag} {rewrite.after}." if _stays(server, found, flag, rewrite) else "",
            (flag,),
            ENGINE,
        )


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)


def _stays(server: Server, found: Ledger, flag: str, rewrite: Rewrite) -> bool:
    """Whether writing the engine's own value would be left alone."""
    if not isinstance(rewrite.after, str | int | float) or isinstance(rewrite.after, bool):
        return False
    was = found.resolved
    resolved = resolve(server.set(flag, rewrite.after), was.platform, model=was.model, draft=was.draft)
    return resolved.accepted and bool(resolved[rewrite.field] == rewrite.after)


def request_limit(found: Ledger) -> Iterator[Finding]:
    """Speculation without a request limit means 48."""
    resolved = found.resolved
    if not resolved.accepted or not resolved["speculative_algorithm"]:
        return
    if "max_running_requests" not in resolved.given:
        yield Finding(
            "spec-48",
            "rewrite",
            "Speculation without --max-running-requests limits the server to "
            f"{resolved['max_running_requests']} requests.",
            "Write --max-running-requests for the concurrency you want.",
            ("--max-running-requests",),
            ENGINE,
        )


def concurrency(
    server: Server, found: Ledger, workload: Workload, measured: Measured | None = None
) -> Iterator[Finding]:
    """Fewer requests run at once than asked, and what would admit them."""
    asked = workload.concurrency
    if asked is None or found.admitted is None or not found.boots:
        return
    isl, osl = workload.isl, workload.osl
    load = None if isl is None or osl is None else found.workload(isl, osl)
    workers = found.inputs.attn_dp if found.inputs else 1
    admitted = found.admitted if load is None else load.admitted * workers
    if admitted >= asked:
        return
    binds = str(found.sizing.binds) if load is None and found.sizing else (load.binds if load else "")
    words = {"state": "the KDA state pool", "kv": "the KV pool", "asked": "--max-running-requests"}
    yield Finding(
        "admits-less",
        "capacity",
        f"{asked} requests are asked for, {admitted} run at once: {words.get(binds, binds)} binds.",
        _advice(server, found, Demand(asked, (isl or 0) + (osl or 0) or 1), measured),
        ("--max-running-requests", "--mamba-full-memory-ratio", "--max-mamba-cache-size"),
        f"ledger ({found.basis})",
    )


def _advice(server: Server, found: Ledger, demand: Demand, measured: Measured | None) -> str:
    advice = advise(server, found, demand, measured)
    split = advice.split
    if split.admitted:
        parts = [f"--max-running-requests {split.asked}"] if split.asked else []
        if split.ratios:
            parts.append(f"--mamba-full-memory-ratio {split.ratios.safest}")
        elif split.slots:
            parts.append(f"--max-mamba-cache-size {split.slots.low}")
        return "Write " + " ".join(parts) + "." if parts else ""
    steps = ", then ".join(f"{step.lever.written} ({step.together})" for step in advice.steps)
    ends = "" if advice.reached else f" Even so no split of this hardware admits {demand.concurrency}."
    head = f"No split of this memory admits it (at most {split.most})."
    return f"{head} Levers, cheapest first, with what each admits: {steps}.{ends}" if steps else head + ends


def stale_environment(server: Server) -> Iterator[Finding]:
    """Variables that this engine no longer reads, though recipes and scripts still set them."""
    known = {rename.old: rename for rename in renames().environment}
    for name, text in server.environment.items():
        rename = known.get(name)
        if rename is None or rename.status != "gone":
            continue
        yield Finding(
            "stale-environment",
            "advice",
            f"{ENGINE} does not read {name}={text}.",
            f"Use {rename.to} instead." if rename.to else "Leave it out.",
            (name,),
            rename.source,
        )


def unpublished(pool: Pool) -> Iterator[Finding]:
    """Values that no source publishes stand as placeholders in the command."""
    for unknown in pool.unpublished:
        assumed = f" The figures below assume {unknown.assume}: {unknown.because}" if unknown.assume else ""
        yield Finding(
            "unpublished",
            "advice",
            f"{unknown.flag}: {unknown.what}{assumed}",
            f"Replace {unknown.placeholder} before you start.",
            (unknown.flag,),
        )


def boot_warnings(found: Ledger) -> Iterator[Finding]:
    """What sizing will print or run into."""
    for text in found.warnings:
        if not text.startswith("max_running_requests is capped to"):  # said by `admits-less` when it matters
            yield Finding("boot-warning", "capacity", text, source=ENGINE)
