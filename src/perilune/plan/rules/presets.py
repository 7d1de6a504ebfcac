"""The large-scale shapes of the page: attention TP 8 in groups over a MegaMoE lane."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import write
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

MOST_VALIDATED_GPUS = 8


def _large_scale(s: Subject) -> bool:
    shape = s.accepted and s.is_k3 and s.role == "unified" and s["moe_a2a_backend"] == "megamoe"
    return bool(shape and s["tp_size"] // s["attn_dp_size"] == 8)


@rule("preset-kv-fp8", "advice", PAGE)
def kv_fp8(s: Subject) -> Iterator[Says]:
    """The large-scale shapes need fp8 KV: bf16 does not hold 128 requests a replica."""
    if _large_scale(s) and s["kv_cache_dtype"] not in ("fp8_e4m3", "fp8"):
        yield Says(
            f"A MegaMoE server in groups of 8 with {s['kv_cache_dtype']} KV does not hold 128 requests a replica.",
            flags=("--kv-cache-dtype",),
            edits=(write("--kv-cache-dtype", "fp8_e4m3"),),
        )


@rule("preset-speculation", "advice", PAGE)
def speculation(s: Subject) -> Iterator[Says]:
    """Speculation with EP and attention DP was validated on 8 GPUs only."""
    if _large_scale(s) and s.speculates and s["attn_dp_size"] > 1 and s["tp_size"] > MOST_VALIDATED_GPUS:
        yield Says(
            f"Speculation with EP and attention DP was validated on 8 GPUs; this server has {s['tp_size']}. "
            "Acceptance pays less at large batches.",
            "Measure against the same server without speculation.",
            ("--speculative-algorithm",),
        )


RULES = (kv_fp8, speculation)
