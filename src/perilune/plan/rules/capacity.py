"""Requests and tokens: what was asked against what the pools admit, always with the numbers."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.memory import Demand, NoticeKind
from perilune.plan.memory.levers import advise
from perilune.plan.memory.notices import LEAST_HEADROOM_BYTES
from perilune.plan.memory.pools import GIB
from perilune.plan.memory.split import Split, most_requests
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.finding import Severity
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.subject import Subject

SPLIT_FLAGS = ("--max-running-requests", "--max-mamba-cache-size", "--mamba-full-memory-ratio")
BINDS = {"state": "the state pool", "kv": "the KV pool", "asked": "--max-running-requests"}
WORTH_SAYING = 1.25  # how many times more another split must admit
LARGE_SCRATCH = 0.25  # of the memory for both pools


@rule("admits-less", "capacity")
def admits_less(s: Subject) -> Iterator[Says]:
    """Fewer requests run at once than were asked for, by --concurrency or --max-running-requests."""
    found, inputs, sizing = s.ledger, s.ledger.inputs, s.ledger.sizing
    if found.admitted is None or inputs is None or sizing is None or not found.boots:
        return
    asked = s.workload.concurrency or (inputs.asked if s.wrote("--max-running-requests") else None)
    if asked is None:
        return
    length = s.workload.length
    load = found.workload(s.workload.isl, s.workload.osl) if s.workload.isl and s.workload.osl else None
    admitted = found.admitted if load is None else load.admitted * inputs.attn_dp
    usable = asked // inputs.attn_dp * inputs.attn_dp
    if admitted >= (asked if s.workload.concurrency else usable):
        return
    binds = str(sizing.binds if load is None else load.binds)
    detail = ""
    if binds == "state" and sizing.slots is not None:
        detail = f" ({sizing.slots} slots a worker, {inputs.slots_per_request} per request)"
    each = f" of {length:,} tokens each" if length else ""
    fix, edits = _advice(s, Demand(asked, length or 1))
    yield Says(
        f"{asked} requests are asked for, {admitted}{each} run at once: {BINDS[binds]} binds{detail}.",
        fix,
        tuple(sorted(SPLIT_FLAGS, key=lambda flag: not s.wrote(flag))),
        edits,
        source=f"ledger ({found.basis})",
    )


def _advice(s: Subject, demand: Demand) -> tuple[str, tuple[Edit, ...]]:
    advice = advise(s.server, s.ledger, demand, s.measured)
    edits = split_edits(s, advice.split)
    if advice.split.admitted:
        parts = [f"{edit.name} {edit.value}" for edit in edits if edit.action == "set"]
        return ("Write " + " ".join(parts) + "." if parts else ""), edits
    steps = ", then ".join(f"{step.lever.written} ({step.together})" for step in advice.steps)
    ends = "" if advice.reached else f" Even so no split of this hardware admits {demand.concurrency}."
    head = f"No split of this memory admits it (at most {advice.split.most})."
    return (f"{head} Levers, cheapest first, with what each admits: {steps}.{ends}" if steps else head + ends), ()


def split_edits(s: Subject, split: Split) -> tuple[Edit, ...]:
    """The flags that give each pool what a demand needs: a pin with one spare slot a worker, or the limit alone."""
    inputs = s.ledger.inputs
    if not split.admitted or inputs is None:
        return ()
    edits = [write("--max-running-requests", split.asked)] if split.asked else []
    if split.slots and (inputs.given_slots is not None or not (inputs.radix_off and inputs.asked is not None)):
        pin = min(split.slots.low + (0 if inputs.radix_off else inputs.attn_dp), split.slots.high)
        edits.append(write("--max-mamba-cache-size", pin))
        edits += remove("--mamba-full-memory-ratio") if s.wrote("--mamba-full-memory-ratio") else ()
    return tuple(edits)


@rule("state-split", "capacity")
def split(s: Subject) -> Iterator[Says]:
    """The split between state and KV does not suit the request length; without a length and a split, the engine's
    default of 0.9 puts 47 % of the pools into state.
    """
    found, inputs, sizing = s.ledger, s.ledger.inputs, s.ledger.sizing
    if inputs is None or sizing is None or not found.boots or not inputs.hybrid or s.workload.concurrency:
        return
    given = s.wrote("--mamba-full-memory-ratio") or s.wrote("--max-mamba-cache-size")
    by_ratio = sizing.state is not None and sizing.state.rule == "ratio"
    length = s.workload.length
    if not length:
        if by_ratio and not given and not s.template:
            share = 100 * inputs.ratio / (1 + inputs.ratio)
            yield Says(
                f"No split is given: the default of {inputs.ratio:g} puts {share:.0f} % of the pools into state "
                f"({sizing.slots} slots), whatever the request length.",
                "Give --isl and --osl to size it, then write --max-mamba-cache-size.",
                ("--mamba-full-memory-ratio",),
                severity="advice",
            )
        return
    load = found.workload(s.workload.isl or 1, s.workload.osl or 0)
    if load is None or load.binds == "asked":
        return
    most = most_requests(inputs, length)
    if not most or most < load.admitted * WORTH_SAYING:
        return
    demand = Demand(most * inputs.attn_dp, length)
    fix, edits = _advice(s, demand)
    how = "The given split" if given else f"The default ratio of {inputs.ratio:g}"
    yield Says(
        f"{how} admits {load.admitted * inputs.attn_dp} requests of {length:,} tokens, "
        f"the best one {demand.concurrency}: {BINDS[load.binds]} binds.",
        fix,
        tuple(sorted(SPLIT_FLAGS[1:], key=lambda flag: not s.wrote(flag))),
        edits,
        source=f"ledger ({found.basis})",
    )


@rule("state-pin", "capacity")
def pin(s: Subject) -> Iterator[Says]:
    """--max-mamba-cache-size is shared by the attention-DP ranks: each wants whole requests and one slot to spare."""
    inputs, sizing = s.ledger.inputs, s.ledger.sizing
    if inputs is None or sizing is None or inputs.given_slots is None or inputs.radix_off or not inputs.hybrid:
        return
    dp, each, per_request = inputs.attn_dp, inputs.given_slots // inputs.attn_dp, inputs.slots_per_request
    requests = each // per_request
    spare, lost = each - sizing.requests * per_request, inputs.given_slots % dp
    better = write("--max-mamba-cache-size", dp * (requests * per_request + 1))
    share = f"{inputs.given_slots} slots are {each} on each of {dp} attention-DP ranks" if dp > 1 else f"{each} slots"
    if spare < 1 and requests:
        yield Says(
            f"{share}, exactly {requests} requests of {per_request} slots with none to spare: "
            "a full server can stop with `Can not alloc mamba cache`.",
            flags=("--max-mamba-cache-size",),
            edits=(better,),
            source="sgl-project/sglang issue 37066",
        )
    elif (each % per_request > 1 or lost) and sizing.requests == requests:
        idle = dp * (each % per_request) + lost
        yield Says(
            f"{share}, {requests} requests of {per_request} slots: {idle} of all slots never serve a request.",
            flags=("--max-mamba-cache-size",),
            edits=(better,),
            severity="advice",
        )


@rule("state-pin-and-ratio", "rewrite")
def pin_and_ratio(s: Subject) -> Iterator[Says]:
    """A pin makes the engine ignore the ratio."""
    sizing = s.ledger.sizing
    ratio = s.value("--mamba-full-memory-ratio")
    if ratio is None or not s.wrote("--max-mamba-cache-size"):
        return
    slots = f" {sizing.slots} slots a worker stand." if sizing is not None and sizing.slots else ""
    yield Says(
        f"--max-mamba-cache-size is given, so --mamba-full-memory-ratio {ratio} does nothing.{slots}",
        flags=("--mamba-full-memory-ratio", "--max-mamba-cache-size"),
        edits=remove("--mamba-full-memory-ratio"),
    )


@rule("pd-extra-slots", "capacity")
def extra_slots(s: Subject) -> Iterator[Says]:
    """A PD decode server builds slots for requests in transfer that its sizing does not count."""
    found, sizing = s.ledger, s.ledger.sizing
    if s.role != "decode" or sizing is None or sizing.slots is None or not found.stages:
        return
    built = max((stage.allocated.slots for stage in found.stages if stage.allocated), default=0)
    more = built - sizing.slots
    if more <= 0 or s.wrote("--disaggregation-decode-extra-slots") or s.workload.concurrency == 0:
        return
    bytes_ = more * (found.inputs.per_slot if found.inputs else 0)
    fewer = min(16, int(s["disaggregation_decode_extra_slots"] or 16) // 2)
    yield Says(
        f"Besides the {sizing.slots} state slots it is sized for, the server builds {more} for requests in transfer: "
        f"{bytes_ / GIB:.1f} GiB a GPU that no budget counts.",
        flags=("--disaggregation-decode-extra-slots",),
        edits=(write("--disaggregation-decode-extra-slots", fewer),),
        source=f"{ENGINE}, pool allocation",
    )


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
    """The memory fraction leaves too little for graphs and activations: lower it, never raise it."""
    found, inputs = s.ledger, s.ledger.inputs
    kinds = (NoticeKind.OVERCOMMITTED, NoticeKind.HEADROOM)
    said = next((notice.text for notice in found.notices if notice.kind in kinds), None)
    left = found.headroom_bytes
    if said is None or left is None or inputs is None or not found.boots:
        return
    lower = inputs.fraction - max(LEAST_HEADROOM_BYTES - left, 0) / (inputs.before_gib * GIB)
    value = f"{int(lower * 100) / 100:.2f}"
    edits: tuple[Edit, ...] = (write("--mem-fraction-static", value),)
    if not s.again(edits).boots:
        edits = ()
    severity: Severity = "capacity" if left < 0 or not s.template else "advice"
    yield Says(
        said,
        "" if edits else "Lower --cuda-graph-max-bs-decode or --max-running-requests.",
        ("--mem-fraction-static",),
        edits,
        severity=severity,
        source=f"ledger ({found.basis})",
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


@rule("request-too-long", "error")
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
        source="SGLang 0.5.23, request validation",
    )


RULES = (too_long, admits_less, split, pin, pin_and_ratio, extra_slots, scratch, headroom, context)
