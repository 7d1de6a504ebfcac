"""Kernels of Kimi delta attention. Source: SGLang 0.5.23 `arg_groups/kimi_k3_hook.py`."""

from __future__ import annotations

from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution


def linear_attention(r: Resolution) -> None:
    """Decode a bfloat16 state with Triton, verify drafts with CuTeDSL, set DSPARK's draft attention."""
    sm100 = machine.is_sm100(r.platform)
    if r["linear_attn_decode_backend"] is None and r["mamba_ssm_dtype"] == "bfloat16" and sm100:
        r.set("linear_attn_decode_backend", "triton", "Faster than FlashInfer on KDA shapes.")
    algorithm = r["speculative_algorithm"]
    if algorithm is None:
        return
    if r["linear_attn_verify_backend"] is None:
        r.set("linear_attn_verify_backend", "nv_cutedsl", "It verifies a whole draft block in one kernel.")
    if algorithm == "DSPARK" and r["speculative_draft_attention_backend"] is None and sm100:
        r.set(
            "speculative_draft_attention_backend",
            "trtllm_mha",
            "The dense draft needs no host-side planning with it.",
        )
