"""How a server is spread over GPUs."""

from __future__ import annotations

from perilune.plan.memory import Ledger
from perilune.plan.rules.refusals.known import Known, Remedy, known, unset
from perilune.plan.rules.subject import whole
from perilune.plan.server import Server

MOST_RANKS = 4096


def nearest_divisor(flag: str, of: str) -> Remedy:
    """The largest value of `flag`, not above the present one, that divides the field `of`."""

    def edit(server: Server, found: Ledger) -> Server:
        total = int(found.resolved[of] or 1)
        present = server.value(flag) or "1"
        size = whole(present) or 1
        best = next((n for n in range(min(size, total, MOST_RANKS), 0, -1) if total % n == 0), 1)
        return server.unset(flag) if best == 1 else server.set(flag, best)

    return edit


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
        flags=("--nnodes", "--tp-size", "--pp-size"),
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
        "parallel-heads",
        r"AssertionError: .*(heads|divisible)|is not divisible by|Weight .* is not divisible",
        "A tensor of the model does not divide into this many parts.",
        "write a --tp-size that divides its heads and widths",
        flags=("--tp-size", "--ep-size", "--attn-dp-size"),
    ),
)
