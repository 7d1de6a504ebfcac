"""How a server is spread over GPUs: what the argument checks let pass and the start or the memory does not."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import Edit, edits_between, remove, write
from perilune.plan.rules.ranks import ranks_here
from perilune.plan.rules.refusals.remedies import attention_groups
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject, whole


@rule("parallel-node-gpus", "error", f"{ENGINE}, rank layout")
def node_gpus(s: Subject) -> Iterator[Says]:
    """More ranks than the nodes have GPUs."""
    if not s.parsed or not s.shape_known or (s.several_nodes and "--nnodes" in s.unknown):
        return
    nodes, each = s["nnodes"], s.platform.gpus_per_node
    ranks = ranks_here(s) * nodes
    if ranks <= nodes * each or s.server.has("--use-ray"):
        return
    need = -(-ranks // each)
    meets = s.wrote("--dist-init-addr") and ranks % need == 0
    yield Says(
        f"{ranks} ranks do not fit on {nodes} node{'s' * (nodes > 1)} of {each} {s.platform.label} GPUs.",
        ""
        if meets
        else f"Start it on {need} nodes with --nnodes {need}, --node-rank and --dist-init-addr, or lower --tp-size.",
        ("--tp-size", "--nnodes"),
        (write("--nnodes", need),) if meets else (),
    )


@rule("parallel-dp-renamed", "advice", since="0.5.22")
def old_attention_dp(s: Subject) -> Iterator[Says]:
    """--dp-size N with --enable-dp-attention is the old spelling of --attn-dp-size N."""
    if not s.wrote("--enable-dp-attention") or not s.wrote("--dp-size") or s.wrote("--attn-dp-size"):
        return
    size = s.value("--dp-size") or ""
    if (whole(size) or 0) < 2:
        return
    yield Says(
        f"--dp-size {size} --enable-dp-attention still works with a warning; it is --attn-dp-size {size} now.",
        flags=("--enable-dp-attention", "--dp-size"),
        edits=(*remove("--dp-size", "--enable-dp-attention"), write("--attn-dp-size", size)),
    )


@rule("parallel-dp-single", "rewrite")
def single_group(s: Subject) -> Iterator[Says]:
    """Attention DP with one group is no attention DP."""
    if not s.wrote("--enable-dp-attention") or not s.accepted or s["attn_dp_size"] > 1:
        return
    edits = remove("--enable-dp-attention", *(("--dp-size",) if s.value("--dp-size") == "1" else ()))
    yield Says(
        "--enable-dp-attention with a single group does nothing: the engine turns it off.",
        flags=("--enable-dp-attention",),
        edits=edits,
    )


@rule("parallel-attention-tp1", "advice", PAGE)
def attention_tp1(s: Subject) -> Iterator[Says]:
    """Attention DP equal to the TP size: every rank holds the whole MLA KV and whole states."""
    if not s.accepted or not s.is_k3 or s["attn_dp_size"] < 2 or s["attn_dp_size"] != s["tp_size"]:
        return
    size = s["attn_dp_size"]
    smaller = (edits_between(s.known, attention_groups(s.known, size >> n)) for n in range(1, size.bit_length() - 1))
    edits = next((edits for edits in smaller if s.again(edits).boots), ())
    yield Says(
        f"With attention DP {size} every GPU keeps whole states and the whole MLA KV of its requests; "
        "the page uses this shape on 288 GB GPUs with the radix cache off only.",
        "" if edits else "Write a smaller --attn-dp-size.",
        (s.first("--attn-dp-size", "--enable-dp-attention"),),
        edits,
    )


@rule("parallel-deep-pipeline", "advice", PAGE)
def deep_pipeline(s: Subject) -> Iterator[Says]:
    """A deep pipeline needs several requests in flight, and TP beside it copies the MLA KV."""
    if not s.accepted or not s.is_k3 or s.role != "prefill" or s["pp_size"] < 4:
        return
    if s["tp_size"] > 1:
        flat = (write("--tp-size", 1), write("--pp-size", s["pp_size"] * s["tp_size"]))
        edits = flat if s.again(flat).boots else ()
        yield Says(
            f"TP {s['tp_size']} in a pipeline of {s['pp_size']} stages keeps the MLA KV {s['tp_size']} times.",
            "" if edits else "Use more pipeline stages and a smaller --tp-size.",
            ("--tp-size", "--pp-size"),
            edits,
        )
    elif s.workload.concurrency is not None and s.workload.concurrency < 8:
        yield Says(
            f"{s.workload.concurrency} requests do not fill a pipeline of {s['pp_size']} stages.",
            f"Write --tp-size {s['pp_size']} --ep-size {s['pp_size']} without --pp-size below about 8 requests.",
            ("--pp-size",),
        )


@rule("parallel-block-scales", "error", "inclusionAI/Ling-3.0-flash discussion 8")
def block_scales(s: Subject) -> Iterator[Says]:
    """The TP slice of an expert splits a 128-wide block of FP8 scales."""
    if not s.accepted or s.resolved.model.quant_method != "fp8":
        return
    section = s.resolved.model.quantization_config or {}
    block = section.get("weight_block_size")
    width = s.resolved.model.text.get("moe_intermediate_size")
    if not isinstance(block, list | tuple) or not block or not isinstance(width, int) or not isinstance(block[0], int):
        return
    parts = s["tp_size"] // s["ep_size"]
    if parts < 2 or (width % parts == 0 and (width // parts) % block[0] == 0):
        return
    edits: tuple[Edit, ...] = (write("--ep-size", s["tp_size"]),)
    yield Says(
        f"Experts of width {width} split {parts} ways do not fall on the {block[0]}-wide blocks of the FP8 scales.",
        flags=("--tp-size", "--ep-size"),
        edits=edits,
    )


RULES = (node_gpus, old_attention_dp, single_group, attention_tp1, deep_pipeline, block_scales)
