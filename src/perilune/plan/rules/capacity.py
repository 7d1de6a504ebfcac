"""Requests and tokens: what was asked against what the pools admit, always with the numbers."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import remove, write
from perilune.plan.rules.reaching import reach
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.splitting import asked_requests, better_split, running
from perilune.plan.rules.subject import Subject

SPLIT_FLAGS = ("--max-running-requests", "--max-mamba-cache-size", "--mamba-full-memory-ratio")
BINDS = {"state": "the state pool", "kv": "the KV pool", "asked": "--max-running-requests"}


@rule("admits-less", "capacity")
def admits_less(s: Subject) -> Iterator[Says]:
    """Fewer requests run at once than were asked for, by --concurrency or --max-running-requests."""
    found, inputs, sizing = s.ledger, s.ledger.inputs, s.ledger.sizing
    asked = asked_requests(s)
    if found.admitted is None or inputs is None or sizing is None or not found.boots or asked is None:
        return
    if s.role == "prefill" and (s.template or s.workload.concurrency):
        return  # the pair is asked, and prefill holds a request only until decode has it
    length = s.workload.length
    admitted, binds = running(s.ledger, s.workload)
    usable = asked // inputs.attn_dp * inputs.attn_dp
    if admitted >= (asked if s.workload.concurrency else usable):
        return
    detail = ""
    if binds == "state" and sizing.slots is not None:
        detail = f" ({sizing.slots} slots a worker, {inputs.slots_per_request} per request)"
    each = f" of {length:,} tokens each" if length else ""
    fix, edits = reach(s, asked, admitted)
    yield Says(
        f"{asked} requests are asked for, {admitted}{each} run at once: {BINDS[binds]} binds{detail}.",
        fix,
        _written_first(s, SPLIT_FLAGS),
        edits,
        source=f"ledger ({found.basis})",
    )


def _written_first(s: Subject, flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(flags, key=lambda flag: not s.wrote(flag)))


def _split_given(s: Subject) -> bool:
    return s.wrote("--mamba-full-memory-ratio") or s.wrote("--max-mamba-cache-size")


@rule("state-default", "advice")
def default_split(s: Subject) -> Iterator[Says]:
    """Without a request length and a split, the engine's default ratio of 0.9 puts 47 % of the pools into state."""
    inputs, sizing = s.ledger.inputs, s.ledger.sizing
    if inputs is None or sizing is None or not s.ledger.boots or not inputs.hybrid or s.template:
        return
    if s.workload.length or s.workload.concurrency or _split_given(s):
        return
    if sizing.state is None or sizing.state.rule != "ratio":
        return
    share = 100 * inputs.ratio / (1 + inputs.ratio)
    yield Says(
        f"No split is given: the default of {inputs.ratio:g} puts {share:.0f} % of the pools into state "
        f"({sizing.slots} slots), whatever the request length.",
        "Give --isl and --osl to size it, then write --max-mamba-cache-size.",
        ("--mamba-full-memory-ratio",),
    )


@rule("state-split", "capacity")
def split(s: Subject) -> Iterator[Says]:
    """The split between state and KV does not suit the request length: another one admits far more."""
    better, inputs = better_split(s), s.ledger.inputs
    if better is None or inputs is None:
        return
    admitted, best = better
    fix, edits = reach(s, best, admitted)
    how = "The given split" if _split_given(s) else f"The default ratio of {inputs.ratio:g}"
    yield Says(
        f"{how} admits {admitted} requests of {s.workload.length:,} tokens, the best one {best}: "
        f"{BINDS[running(s.ledger, s.workload)[1]]} binds.",
        fix,
        _written_first(s, SPLIT_FLAGS[1:]),
        edits,
        source=f"ledger ({s.ledger.basis})",
    )


@rule("kv-context", "capacity")
def context(s: Subject) -> Iterator[Says]:
    """One request of the full context length does not fit into the KV pool."""
    sizing, written = s.ledger.sizing, s.value("--context-length")
    if sizing is None or written is None or not s.ledger.boots:
        return
    length, held = int(s["context_length"] or 0), sizing.logical_tokens
    if length <= held:
        return
    yield Says(
        f"--context-length {length:,} does not fit: the KV pool holds {held:,} tokens for all requests together.",
        flags=("--context-length",),
        edits=(write("--context-length", held // 1024 * 1024 or held),),
        source=f"ledger ({s.ledger.basis})",
    )


@rule("request-too-long", "error", f"{ENGINE}, request validation")
def too_long(s: Subject) -> Iterator[Says]:
    """Requests longer than the context are refused one by one."""
    model, length = s.resolved.engine_model, s.workload.length
    if model is None or not s.accepted or length is None or length <= model.context_length:
        return
    yield Says(
        f"Requests of {length:,} tokens are refused: the context is {model.context_length:,} tokens.",
        "" if s.wrote("--context-length") else "Ask for shorter ones.",
        ("--context-length",),
        remove("--context-length") if s.wrote("--context-length") else (),
    )


RULES = (too_long, admits_less, default_split, split, context)
