"""Decode context parallelism beyond what the engine refuses."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import remove, write
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

MOST_RANKS = 4096


@rule("dcp-divides", "error", f"{ENGINE}, parallel groups")
def divides(s: Subject) -> Iterator[Says]:
    """DCP groups are cut from TP groups while the ranks start, after the arguments were accepted."""
    if not s.accepted or "--tp-size" in s.unknown or "--dcp-size" in s.unknown:
        return
    tp, dcp = s["tp_size"], s["dcp_size"]
    if dcp < 2 or tp % dcp == 0:
        return
    best = max(n for n in range(1, min(tp, dcp, MOST_RANKS) + 1) if tp % n == 0)
    yield Says(
        f"A TP group of {tp} cannot be cut into DCP groups of {dcp}: the ranks stop while they start.",
        flags=("--dcp-size", "--tp-size"),
        edits=(write("--dcp-size", best),) if best > 1 else remove("--dcp-size", "--dcp-comm-backend"),
    )


@rule("dcp-kimi-linear", "advice", "sgl-project/sglang pull request 36005")
def kimi_linear(s: Subject) -> Iterator[Says]:
    """DCP was validated with Kimi-K3; with Kimi-Linear an assertion of the state tracking was reported."""
    if s.accepted and s["dcp_size"] > 1 and s.resolved.model.architecture == "KimiLinearForCausalLM":
        yield Says(
            f"DCP {s['dcp_size']} is validated with Kimi-K3; with Kimi-Linear its state tracking was reported to "
            "assert (`i % chunk_size`).",
            flags=("--dcp-size",),
            edits=remove("--dcp-size", *(("--dcp-comm-backend",) if s.wrote("--dcp-comm-backend") else ())),
        )


@rule("dcp-comm-written", "advice", PAGE)
def comm_written(s: Subject) -> Iterator[Says]:
    """On Blackwell the exchange follows from the fabric."""
    written = s.value("--dcp-comm-backend")
    if not s.accepted or written is None or s["dcp_size"] < 2 or s.platform.family != "blackwell":
        return
    plain = s.again(remove("--dcp-comm-backend")).resolved
    if plain.accepted and plain["dcp_comm_backend"] != written:
        yield Says(
            f"--dcp-comm-backend {written} stands in for {plain['dcp_comm_backend']}, which the engine picks here.",
            flags=("--dcp-comm-backend",),
            edits=remove("--dcp-comm-backend"),
        )


@rule("dcp-prefill-role", "advice")
def prefill_role(s: Subject) -> Iterator[Says]:
    """DCP on a PD prefill server gains nothing there and ties the decode side to the same layout."""
    if s.accepted and s.role == "prefill" and s["dcp_size"] > 1:
        yield Says(
            f"DCP {s['dcp_size']} on a prefill server gains nothing and works with the same DCP on decode only.",
            flags=("--dcp-size",),
            edits=remove("--dcp-size"),
        )


RULES = (divides, kimi_linear, comm_written, prefill_role)
