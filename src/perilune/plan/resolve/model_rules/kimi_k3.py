"""Kimi-K3: attention backends with and without DCP, where DSPARK verifies, the MoE runner.

Source: SGLang 0.5.23 `arg_groups/model_overrides/kimi_k3.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perilune.plan.model.config import ModelConfig
from perilune.plan.resolve import machine
from perilune.plan.resolve.speculation.common import ragged_verify_mode
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends, attention_unset

VERIFYING_DECODE_BACKENDS: Final = frozenset({"trtllm_mla", "cutedsl_mla"})
"""Decode backends that can also check a whole draft block in one step."""


def attention(r: Resolution) -> None:
    """Choose the attention backends, and run DSPARK verification on the decode backend where it can."""
    if r["dcp_size"] > 1:
        _with_dcp(r)
        return
    if not machine.is_sm100(r.platform):
        return
    if attention_unset(r):
        reason = "The fastest for Kimi-K3 on Blackwell."
        r.set("decode_attention_backend", "trtllm_mla", reason)
        r.set("prefill_attention_backend", "trtllm_mla", reason)
    if r["speculative_algorithm"] != "DSPARK":
        return
    decode = attention_backends(r)[1]
    if decode in VERIFYING_DECODE_BACKENDS:
        r.set("speculative_attention_mode", "decode", f"{decode} can verify a draft block by itself.")
    else:
        r.warn(f"DSPARK verifies on the slower prefill backend: {decode} decode cannot.")


def moe_runner(r: Resolution) -> None:
    """Run MXFP4 experts with FlashInfer's kernels on Blackwell."""
    blackwell = machine.is_sm100(r.platform)
    if r["moe_runner_backend"] == "auto" and blackwell and _packs_mxfp4(r.model):
        r.set("moe_runner_backend", "flashinfer_mxfp4", "FlashInfer has MXFP4 kernels for Blackwell.")


def _with_dcp(r: Resolution) -> None:
    # Written at the end: the engine reads the backends as they were before these decisions.
    prefill, decode = attention_backends(r)
    if r["enable_symm_mem"]:
        r.warn("Symmetric memory is off: its decode graphs are not correct under DCP.")
        r.set("enable_symm_mem", False, "Not correct in decode graphs under DCP.")
    if r["speculative_algorithm"] == "DSPARK":
        mode = ragged_verify_mode(r)
        if mode != "static":
            raise r.reject(
                "Kimi-K3 DCP + DSPARK currently requires SGLANG_RAGGED_VERIFY_MODE=static; "
                f"compact/cap-accept are not validated under DCP (got {mode!r})."
            )
        r.set("speculative_attention_mode", "decode", "Only the decode backend can verify under DCP.")
    if decode in ("cutedsl_mla", None):
        r.set("prefill_attention_backend", "trtllm_mla", "cutedsl_mla only decodes.")
        r.set("decode_attention_backend", "cutedsl_mla", "It has a kernel for DCP.")
    elif decode == "aiter":
        _with_aiter_dcp(r, prefill)
    else:
        raise r.reject(
            f"Decode attention backend for Kimi-K3 DCP must be 'cutedsl_mla' or 'aiter', got {decode!r}.",
            error="AssertionError",
        )
    if r["dcp_replicate_q_proj"] is None and r["dcp_comm_backend"] in ("a2a", "fi_a2a"):
        r.set("dcp_replicate_q_proj", True, "All-to-all DCP exchanges less with a replicated Q projection.")


def _with_aiter_dcp(r: Resolution, prefill: str | None) -> None:
    if not r.flag_env("SGLANG_AITER_MLA_GLUON", default=True):
        raise r.reject(
            "Kimi-K3 DCP with decode_attention_backend='aiter' requires the aiter gluon mla kernel, which is "
            "unavailable. See above aborting reasons.",
            error="RuntimeError",
        )
    kept = "triton" if prefill == "triton" else "aiter"
    r.set("prefill_attention_backend", kept, "Prefill follows aiter decode unless it is triton.")
    r.set("decode_attention_backend", "aiter", "It has a kernel for DCP.")


def _packs_mxfp4(model: ModelConfig) -> bool:
    section = model.text.get("quantization_config")
    groups = section.get("config_groups") if isinstance(section, Mapping) else None
    entries = groups.values() if isinstance(groups, Mapping) else ()
    return any(isinstance(group, Mapping) and "mxfp4" in str(group.get("format", "")) for group in entries)
