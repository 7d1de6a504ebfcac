"""Deterministic inference: what it forces, and what it does not work with.

Source: SGLang 0.5.23 `arg_groups/attention_hook.py` (`handle_deterministic_inference`).
"""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution

BACKENDS: Final = ["ascend", "fa3", "fa4", "flashinfer", "intel_xpu", "triton"]
BACKENDS_WITH_RADIX: Final = ["ascend", "fa3", "fa4", "triton"]
ABSORBED_MLA: Final = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
    }
)


def deterministic_inference(r: Resolution) -> None:
    """Force the kernels and collectives whose results do not depend on the batch."""
    if r["rl_on_policy_target"] is not None:
        r.warn("On-policy RL turns deterministic inference on.")
        r.set("enable_deterministic_inference", True, "Needed by --rl-on-policy-target.")
        r.env["SGLANG_VLM_CACHE_SIZE_MB"] = "0"
        r.env["SGLANG_ENABLE_DETERMINISTIC_INFERENCE"] = "True"
    if not r["enable_deterministic_inference"]:
        return
    reason = "Not deterministic."
    if r["enable_aiter_allreduce_fusion"]:
        r.set("enable_aiter_allreduce_fusion", False, reason)
    if r["flashinfer_allreduce_fusion_backend"] is not None:
        r.set("flashinfer_allreduce_fusion_backend", None, reason)
    if r["sampling_backend"] != "ascend":
        r.set("sampling_backend", "pytorch", "Deterministic sampling.")
    _settle_backend(r)
    if r["tp_size"] > 1:
        _settle_collectives(r)


def _settle_backend(r: Resolution) -> None:
    backend = r["attention_backend"]
    absorbed = r.model.architecture in ABSORBED_MLA
    if backend is None:
        backend = "fa3"
        if machine.is_sm100(r.platform):
            backend = "triton" if absorbed else "flashinfer"
        r.warn(f"Attention runs on {backend} for deterministic inference.")
        r.set("attention_backend", backend, "Deterministic on this platform.")
    elif backend not in BACKENDS:
        raise r.reject(
            f"Currently only {BACKENDS} attention backends are supported for deterministic inference, "
            f"but you explicitly specified '{backend}'."
        )
    if absorbed or r.model.architecture == "Glm5NextForConditionalGeneration":
        _check_absorbed_mla(r, backend)
    if backend not in BACKENDS_WITH_RADIX:
        r.warn(f"The radix cache is off: with {backend} attention it is not deterministic.")
        r.set("disable_radix_cache", True, f"Not deterministic with {backend} attention.")


def _check_absorbed_mla(r: Resolution, backend: str) -> None:
    if backend not in BACKENDS_WITH_RADIX:
        raise r.reject(
            f"Currently only {BACKENDS_WITH_RADIX} attention backends are supported for deterministic "
            f"inference with absorbed-MLA models. But you're using {backend}."
        )
    if backend == "fa4" and not machine.is_sm100(r.platform):
        raise r.reject(
            "Deterministic inference with absorbed-MLA models on the fa4 attention backend requires "
            "SM100/SM110: it runs absorbed MLA, whose qv argument flash_attn.cute only implements on "
            "those archs."
        )


def _settle_collectives(r: Resolution) -> None:
    if machine.is_hip(r.platform):
        if r["tp_size"] > 2 and r["disable_custom_all_reduce"]:
            raise r.reject(
                "--disable-custom-all-reduce cannot be combined with --enable-deterministic-inference on "
                "ROCm when --tp-size is above 2: the all-reduce would run through RCCL, which is not "
                "batch-invariant."
            )
        return
    channels = str(r.int_env("SGLANG_DETERMINISTIC_NCCL_NCHANNELS", 8))
    r.env |= {
        "NCCL_ALGO": "allreduce:tree",
        "NCCL_MIN_NCHANNELS": channels,
        "NCCL_MAX_NCHANNELS": channels,
    }
    reason = "Its reduction order depends on the message size."
    r.set("disable_custom_all_reduce", True, reason)
    r.set("enable_torch_symm_mem", False, reason)
    r.warn(f"All-reduce runs as an NCCL tree over {channels} channels, to be deterministic.")
