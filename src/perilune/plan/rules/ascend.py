"""Ascend: the store of the KV transfer, and what its recipes do not have."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.resolve import DEFAULT_DRAFT
from perilune.plan.rules.edits import remove, write
from perilune.plan.rules.families import SPECULATION
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

STORE, TRANSFER = "ASCEND_MF_STORE_URL", "--disaggregation-transfer-backend"


@rule("ascend-store-missing", "error", f"{ENGINE}, Ascend transfer engine")
def store_missing(s: Subject) -> Iterator[Says]:
    """A PD role with the Ascend transfer needs the address of its store."""
    ascend = s.parsed and s.role != "unified" and s.value(TRANSFER) == "ascend" and s.platform.kind == "npu"
    if ascend and STORE not in s.env:
        yield Says(
            f"The Ascend transfer engine does not start without {STORE}.",
            f"Set {STORE}=tcp://<address of the prefill head>:<free port> on both roles.",
            (STORE, TRANSFER),
        )


@rule("ascend-transfer", "error", PAGE)
def transfer(s: Subject) -> Iterator[Says]:
    """PD on A3 goes over the Ascend memory fabric, which other accelerators do not have."""
    if not s.accepted or s.role == "unified":
        return
    chosen, fabric = s["disaggregation_transfer_backend"], s.platform.kind == "npu"
    if s.platform.id == "a3" and chosen in ("mooncake", "nixl"):
        yield Says(
            f"PD on A3 transfers with the ascend backend, not {chosen}.",
            flags=(TRANSFER,),
            edits=(write(TRANSFER, "ascend"),),
        )
    elif chosen == "ascend" and not fabric:
        yield Says(
            f"{TRANSFER} ascend needs the Ascend memory fabric; this is {s.platform.label}.",
            flags=(TRANSFER,),
            edits=(write(TRANSFER, "nixl" if s.platform.kind == "cuda" else "mooncake"),),
        )


@rule("ascend-prefill-speculation", "advice", PAGE)
def prefill_speculation(s: Subject) -> Iterator[Says]:
    """The A3 prefill role runs without speculation."""
    if s.accepted and s.is_k3 and s.platform.kind == "npu" and s.role == "prefill" and s.speculates:
        yield Says(
            "The A3 prefill recipe runs without speculation: a pipelined role has no draft.",
            flags=("--speculative-algorithm",),
            edits=remove(*(flag for flag in SPECULATION if s.wrote(flag))),
        )


@rule("ascend-speculation", "advice", PAGE)
def unified_speculation(s: Subject) -> Iterator[Says]:
    """The unified Ascend recipes run with DSPARK."""
    if not s.accepted or not s.is_k3 or s.platform.kind != "npu" or s.role != "unified":
        return
    if s["speculative_algorithm"] != "DSPARK":
        yield Says(
            "The unified Ascend recipes are published with DSPARK only.",
            flags=("--speculative-algorithm",),
            edits=(
                write("--speculative-algorithm", "DSPARK"),
                write("--speculative-draft-model-path", DEFAULT_DRAFT),
            ),
        )


@rule("ascend-replay", "advice", PAGE)
def replay(s: Subject) -> Iterator[Says]:
    """ReplaySSM needs the Triton decode kernel of CUDA."""
    if s.parsed and s.platform.kind == "npu" and s.wrote("--enable-linear-replayssm-spec"):
        yield Says(
            "ReplaySSM is a CUDA path; the Ascend recipes never set it.",
            flags=("--enable-linear-replayssm-spec",),
            edits=remove("--enable-linear-replayssm-spec"),
        )


@rule("ascend-tool-parser", "advice", PAGE)
def tool_parser(s: Subject) -> Iterator[Says]:
    """Tool calls are not supported on Ascend yet."""
    if s.parsed and s.is_k3 and s.platform.kind == "npu" and s.wrote("--tool-call-parser"):
        yield Says(
            "--tool-call-parser is not supported with Kimi-K3 on Ascend yet.",
            flags=("--tool-call-parser",),
            edits=remove("--tool-call-parser"),
        )


RULES = (store_missing, transfer, prefill_speculation, unified_speculation, replay, tool_parser)
