"""How a server is spread over GPUs."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.known import Known, known
from perilune.plan.rules.refusals.remedies import MOST_RANKS, TP, nearest_divisor, then, unset
from perilune.plan.rules.subject import sized, whole
from perilune.plan.server import Server

SIZES = {
    "--ep-size": "ep_size",
    "--moe-dp-size": "moe_dp_size",
    "--attn-dp-size": "attn_dp_size",
    "--attn-cp-size": "attn_cp_size",
}


def _zeros(found: Ledger) -> list[str]:
    return [flag for flag, field in SIZES.items() if found.resolved[field] == 0]


def _in_groups(found: Ledger) -> bool:
    return found.error_stage == "groups"


def _some_zero(found: Ledger) -> bool:
    return _in_groups(found) and bool(_zeros(found))


def _even_tp(server: Server, found: Ledger) -> Server:
    """The nearest power of two, above or below, by which the model divides; expert groups follow it."""
    below = 1 << (int(found.resolved["tp_size"]).bit_length() - 1)
    for size in (below, *([below * 2] if below < MOST_RANKS else []), *(below >> n for n in range(1, 4))):
        tried = server.set(TP, size) if size else server
        ep = whole(tried.value("--ep-size"))
        if ep is not None and ep > 1 and size % ep:
            tried = tried.set("--ep-size", size)
        if sized(tried, found).boots:
            return tried
    return server


def _attention_groups(server: Server, found: Ledger) -> Server:
    """The fewest attention-DP groups, by doubles, in which the heads divide and the server starts."""
    tp = int(found.resolved["tp_size"])
    groups = (2**n for n in range(1, tp.bit_length()) if tp % 2**n == 0)
    return next((tried for n in groups if sized(tried := server.set("--attn-dp-size", n), found).boots), server)


def _even_nodes(server: Server, found: Ledger) -> Server:
    """The fewest nodes with a GPU for each rank and as many ranks on each; none of the flags for one node alone."""
    r = found.resolved
    ranks, stages = int(r["tp_size"] * r["pp_size"]), int(r["pp_size"])
    least = -(-ranks // r.platform.gpus_per_node)
    if least == 1:
        return unset("--nnodes", "--node-rank", "--dist-init-addr")(server, found)
    divides = (n for n in range(least, ranks + 1) if ranks % n == 0 and (stages % n == 0 or n % stages == 0))
    nodes = next(divides, None) if ranks <= MOST_RANKS else None
    return server if nodes is None else server.set("--nnodes", nodes)


PARALLELISM: tuple[Known, ...] = (
    known(
        "parallel-dp",
        r"data-parallel replicas combined with",
        "A server is replicated or its attention is split, not both.",
        "remove --dp-size",
        unset("--dp-size", "--enable-dp-attention"),
        ("--attn-dp-size", "--dp-size"),
    ),
    known(
        "parallel-dp",
        r"--attn-dp-size must be positive",
        "Attention DP of 0 means nothing.",
        "remove --attn-dp-size",
        unset("--attn-dp-size", "--enable-dp-lm-head"),
        ("--attn-dp-size",),
    ),
    known(
        "parallel-dp-nodes",
        r"multi-node data-parallel replicas are not supported",
        "Replicas live on one node.",
        "remove --dp-size",
        unset("--dp-size"),
        ("--dp-size",),
    ),
    known(
        "parallel-nodes",
        r"nnodes|number of nodes",
        "The ranks (TP x PP) are spread evenly over the nodes.",
        "write an --nnodes that divides the ranks",
        _even_nodes,
        ("--nnodes", "--tp-size", "--pp-size"),
    ),
    known(
        "parallel-layernorm",
        r"--enable-layernorm-sp is only supported",
        "The model has no sequence-parallel LayerNorm.",
        "remove --enable-layernorm-sp",
        unset("--enable-layernorm-sp"),
        ("--enable-layernorm-sp",),
    ),
    known(
        "parallel-zero",
        r"ZeroDivisionError",
        "A group of size 0 has no ranks: the GPUs cannot be divided by it.",
        "remove the sizes that are 0",
        lambda server, found: unset(*_zeros(found))(server, found),
        tuple(SIZES),
        _some_zero,
    ),
    known(
        "parallel-experts",
        r"ZeroDivisionError|parallel topology is inconsistent",
        "Expert groups are cut from TP groups, so the TP size is a multiple of --ep-size times --moe-dp-size.",
        "write an --ep-size that divides the TP size",
        then(unset("--moe-dp-size"), nearest_divisor("--ep-size", "tp_size")),
        ("--ep-size", "--moe-dp-size", "--tp-size"),
        _in_groups,
    ),
    known(
        "parallel-heads",
        r"AssertionError: .*(heads|divisible)|is not divisible by|Weight .* is not divisible",
        "A tensor of the model does not divide into this many parts.",
        "write a --tp-size that divides its heads and widths",
        _even_tp,
        ("--tp-size", "--ep-size", "--attn-dp-size"),
    ),
    known(
        "parallel-heads",
        r"is not divisible by",
        "A tensor of the model does not divide into this many parts.",
        "write an --attn-dp-size that leaves its heads whole",
        _attention_groups,
        ("--tp-size", "--attn-dp-size"),
        lambda found: found.resolved["attn_dp_size"] == 1,
    ),
)
