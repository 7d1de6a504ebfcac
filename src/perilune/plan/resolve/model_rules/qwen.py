"""Qwen3-Next and Qwen3.5: attention of the hybrid models, the MoE runner.

Source: SGLang 0.5.23 `arg_groups/model_overrides/qwen3_5.py` and `qwen3_moe.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.model.config import ModelConfig
from perilune.plan.resolve import machine
from perilune.plan.resolve.attention import default_backend
from perilune.plan.resolve.mamba import uses_extra_buffer
from perilune.plan.resolve.quantization import layer_algorithms, take_checkpoint_method
from perilune.plan.resolve.state import Resolution

FUSED_MOE_QUANTIZATION: Final = (None, "fp8", "modelopt_fp4", "modelopt_mixed")


def hybrid_attention(r: Resolution) -> None:
    """On Blackwell: TRT-LLM attention with pages where states are snapshotted, else Triton without pages."""
    if not machine.is_sm100(r.platform) or r["attention_backend"] is not None:
        return
    pageless = not uses_extra_buffer(r) and not r["disable_radix_cache"] and r["speculative_algorithm"] is None
    if default_backend(r)[0] == "trtllm_mha" and not pageless:
        r.set("attention_backend", "trtllm_mha", "The fastest on Blackwell.")
        r.set("page_size", 64, "trtllm_mha needs pages.")
    else:
        r.set("attention_backend", "triton", "States without snapshots need pages of one token.")
        r.set("page_size", 1, "States without snapshots need pages of one token.")


def moe_runner(r: Resolution) -> None:
    """On Blackwell, take the checkpoint's quantization and the MoE runner that has kernels for it."""
    if not machine.is_sm100(r.platform):
        return
    take_checkpoint_method(r)
    quantization, runner, a2a = r["quantization"], r["moe_runner_backend"], r["moe_a2a_backend"]
    if quantization == "modelopt_mixed" and "W4A16_NVFP4" in _expert_algorithms(r.model):
        opted_in = r.flag_env("SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16")
        cutedsl = runner == "flashinfer_cutedsl" and a2a in ("none", "flashinfer") and opted_in
        if runner not in ("auto", "marlin") and not cutedsl:
            raise r.reject(
                "W4A16_NVFP4 MoE layers require --moe-runner-backend=marlin, or flashinfer_cutedsl with "
                "--moe-a2a-backend=none/flashinfer and SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1."
            )
        if runner == "auto":
            r.set("moe_runner_backend", "marlin", "The experts are W4A16 NVFP4.")
    elif quantization in FUSED_MOE_QUANTIZATION and a2a == "none" and runner == "auto":
        r.set("moe_runner_backend", "flashinfer_trtllm", "TRT-LLM has MoE kernels for Blackwell.")


def _expert_algorithms(model: ModelConfig) -> set[str]:
    layers = layer_algorithms(model.quantization_config or {})
    return {algorithm for name, algorithm in layers if ".experts" in name}
