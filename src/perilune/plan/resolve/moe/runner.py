"""The kernels that run the experts. Source: SGLang 0.5.23 `arg_groups/moe_hook.py`, `overrides.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.moe.checkpoint import has_hybrid_nvfp4_experts
from perilune.plan.resolve.state import Resolution

MXFP8_RUNNERS: Final = frozenset(
    {"cutlass", "deep_gemm", "flashinfer_megamoe", "flashinfer_trtllm", "flashinfer_trtllm_routed"}
)
SEPARATE_SHARED_EXPERTS: Final[Mapping[str, str]] = {
    "lora_triton": "adapters attach to separate shared experts",
    "lora_cutedsl": "adapters attach to separate shared experts",
    "lora_marlin": "adapters attach to separate shared experts",
    "flashinfer_cutedsl": "FlashInfer CuteDSL runs shared experts apart.",
    "flashinfer_trtllm": "FlashInfer TRTLLM runs shared experts apart.",
    "experimental_sgl_trtllm": "FlashInfer TRTLLM runs shared experts apart.",
    "flashinfer_trtllm_routed": "FlashInfer TRTLLM runs shared experts apart.",
}
TRTLLM_QUANTIZATION: Final = frozenset(
    {
        "modelopt_fp4",
        "nvfp4_online",
        "fp8",
        "mxfp8",
        "modelopt_fp8",
        "modelopt_mixed",
        "compressed-tensors",
        None,
    }
)
ROUTED_QUANTIZATION: Final = frozenset(
    {"fp8", "mxfp8", "modelopt_fp4", "modelopt_mixed", "nvfp4_online", "minimax_m3_nvfp4", None}
)
"""`None` is a checkpoint without `--quantization`, whatever its own format."""


def kernel_config(r: Resolution) -> None:
    """Settle the MoE runner from the quantization and check that the two fit."""
    _runner_for_quantization(r)
    runner, quantization = r["moe_runner_backend"], r["quantization"]
    if runner == "flashinfer_cutlass":
        _check_cutlass(r)
    elif runner == "flashinfer_cutedsl":
        _check_cutedsl(r)
    elif runner in ("flashinfer_trtllm", "experimental_sgl_trtllm"):
        if quantization not in TRTLLM_QUANTIZATION:
            _reject(
                r,
                f"Invalid quantization '{quantization}'. \nFlashInfer TRTLLM MOE supports only: "
                "'modelopt_fp4', 'nvfp4_online', 'fp8', 'modelopt_fp8', 'modelopt_mixed', "
                "'compressed-tensors', or bfloat16 (None).",
            )
    elif runner == "flashinfer_trtllm_routed" and quantization not in ROUTED_QUANTIZATION:
        _reject(
            r,
            f"Invalid quantization '{quantization}'. \nFlashInfer TRTLLM routed MOE supports only: 'fp8', "
            "'mxfp8', 'modelopt_fp4', 'modelopt_mixed', 'nvfp4_online', 'minimax_m3_nvfp4', or bfloat16 "
            "(None).",
        )
    reason = SEPARATE_SHARED_EXPERTS.get(runner)
    if reason is not None:
        r.warn(f"Shared-expert fusion is off: {reason}.")
        r.set("disable_shared_experts_fusion", True, reason)
    if runner == "cutlass" and quantization in ("fp8", "mxfp8") and r["ep_size"] != 1:
        _reject(r, "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1")


def experimental_marlin(r: Resolution) -> None:
    """The experimental Marlin runner supports few LoRA and expert-parallel setups."""
    if r["moe_runner_backend"] != "experimental_sgl_marlin":
        return
    expert_parallel = r["ep_size"] > 1
    if expert_parallel and r["moe_a2a_backend"] != "none":
        raise r.reject("experimental_sgl_marlin EP requires --moe-a2a-backend none")
    if not (r["enable_lora"] or (r["enable_lora"] is None and r["lora_paths"])):
        return
    if not r["lora_use_virtual_experts"]:
        raise r.reject("experimental_sgl_marlin LoRA requires --lora-use-virtual-experts")
    if r["lora_backend"] != "triton":
        raise r.reject("experimental_sgl_marlin LoRA requires --lora-backend triton")
    moves_experts = (
        r["init_expert_location"] != "trivial"
        or r["ep_num_redundant_experts"] != 0
        or r["enable_eplb"]
        or r["elastic_ep_backend"] is not None
        or r["enable_elastic_expert_backup"]
    )
    if expert_parallel and moves_experts:
        raise r.reject(
            "experimental_sgl_marlin EP requires trivial expert placement without redundancy, EPLB, or elastic EP"
        )


def _reject(r: Resolution, text: str) -> None:
    raise r.reject(text, error="AssertionError")


def _runner_for_quantization(r: Resolution) -> None:
    quantization = r["quantization"]
    if quantization == "nvfp4_online":
        _online_nvfp4_runner(r)
    elif quantization == "mxfp8" and not machine.is_npu(r.platform):
        _mxfp8_runner(r)


def _online_nvfp4_runner(r: Resolution) -> None:
    runner = r["moe_runner_backend"]
    mega = r["moe_a2a_backend"] == "flashinfer_megamoe" and r.flag_env("SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16")
    if not machine.is_sm100(r.platform):
        raise r.reject("--quantization nvfp4_online is supported only on NVIDIA Blackwell SM100/SM103 GPUs.")
    if runner == "auto":
        default = "flashinfer_megamoe" if mega else "flashinfer_trtllm"
        r.set("moe_runner_backend", default, "The runner of weights quantized to NVFP4 at load.")
    elif runner not in ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutedsl") and not (
        runner == "flashinfer_megamoe" and mega
    ):
        raise r.reject(
            "--quantization nvfp4_online supports only --moe-runner-backend flashinfer_trtllm or "
            "flashinfer_trtllm_routed, or flashinfer_cutedsl; flashinfer_megamoe requires --moe-a2a-backend "
            "flashinfer_megamoe and SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1."
        )


def _mxfp8_runner(r: Resolution) -> None:
    runner = r["moe_runner_backend"]
    hip = machine.is_hip(r.platform)
    allowed = set(MXFP8_RUNNERS)
    if hip:
        allowed.add("triton")
        if r.flag_env("SGLANG_USE_AITER", default=True):
            allowed.add("aiter")
    default = "triton" if hip else "flashinfer_trtllm"
    if r["moe_a2a_backend"] == "flashinfer_megamoe":
        default = "flashinfer_megamoe"
    if runner == "auto":
        r.set("moe_runner_backend", default, "The default runner of MXFP8 weights.")
    elif runner not in allowed:
        r.warn(f"MXFP8 experts cannot run on {runner}; {default} runs them.")
        r.set("moe_runner_backend", default, f"MXFP8 experts cannot run on {runner}.")


def _check_cutlass(r: Resolution) -> None:
    if r["quantization"] not in ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", None):
        _reject(
            r,
            f"Invalid quantization '{r['quantization']}'. \nFlashInfer Cutlass MOE supports only: "
            "'modelopt_fp4', 'modelopt_fp8', 'modelopt_mixed', or bfloat16 (None).",
        )
    _check_expert_width(r)


def _check_cutedsl(r: Resolution) -> None:
    quantization, exchange = r["quantization"], r["moe_a2a_backend"]
    if quantization not in ("modelopt_fp4", "modelopt_mixed", "nvfp4_online") and not (
        has_hybrid_nvfp4_experts(r.model)
    ):
        _reject(
            r,
            f"Invalid quantization '{quantization}'. \nFlashInfer CuteDSL MOE currently supports only: "
            "'modelopt_fp4', 'modelopt_mixed' (with NVFP4 MoE layers), 'nvfp4_online', or hybrid NVFP4 "
            "models.",
        )
    _check_expert_width(r)
    if exchange not in ("none", "deepep", "flashinfer"):
        _reject(
            r,
            f"flashinfer_cutedsl supports moe_a2a_backend='none', 'deepep', or 'flashinfer', got '{exchange}'.",
        )
    per_token = quantization == "nvfp4_online" or r.flag_env("SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION")
    if exchange == "deepep" and per_token:
        raise r.reject("flashinfer_cutedsl per-token NVFP4 activation requires moe_a2a_backend='none' or 'flashinfer'.")


def _check_expert_width(r: Resolution) -> None:
    if r["ep_size"] not in (1, r["tp_size"]):
        _reject(r, "The expert parallel size must be 1 or the same as the tensor parallel size")
