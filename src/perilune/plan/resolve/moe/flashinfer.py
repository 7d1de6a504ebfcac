"""FlashInfer's two expert all-to-alls. Source: SGLang 0.5.23 `arg_groups/moe_hook.py`."""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.moe.checkpoint import has_hybrid_nvfp4_experts, has_mxfp4_experts
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp

NVFP4_DISPATCH: Final = "SGLANG_MOE_NVFP4_DISPATCH"
W4A16: Final = "SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16"
COMBINE_DTYPE: Final = "SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE"
REDUCE_IN_KERNEL: Final = "SGLANG_FLASHINFER_MEGAMOE_IN_KERNEL_FC2_REDUCE"
MEGAMOE_ARCHITECTURES: Final = (
    "BeamForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV4ForCausalLM",
    "Glm4MoeForCausalLM",
    "GlmMoeDsaForCausalLM",
    "KimiK3ForConditionalGeneration",
    "KimiK3LinearForCausalLM",
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
)
RUNNERS: Final = frozenset(
    {"flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed", "deep_gemm"}
)


def flashinfer_megamoe(r: Resolution) -> None:
    """Check model, quantization, ranks and device of FlashInfer's fused MoE kernel."""
    _check_megamoe_model(r)
    _check_megamoe_environment(r)
    if r.flag_env(W4A16) and engine_model(r).dtype != "bfloat16":
        raise r.reject("FlashInfer MegaMOE NVFP4 W4A16 requires --dtype bfloat16.")
    if not (runs_attention_dp(r) and r["attn_dp_size"] == r["tp_size"]):
        raise r.reject(
            "FlashInfer MegaMOE is only supported with --attn-dp-size equal to --tp-size",
            error="AssertionError",
        )
    if r["moe_runner_backend"] == "auto":
        r.set("moe_runner_backend", "flashinfer_megamoe", "The runner of this all-to-all.")
    if r["moe_runner_backend"] != "flashinfer_megamoe":
        raise r.reject(
            "FlashInfer MegaMOE a2a backend requires --moe-runner-backend flashinfer_megamoe",
            error="AssertionError",
        )
    if not machine.is_sm100(r.platform):
        raise r.reject(
            "FlashInfer MegaMOE currently requires an SM100-family CUDA device for all supported quantization formats."
        )
    draft_exchanges = r["speculative_algorithm"] is not None and r["speculative_moe_a2a_backend"] not in (
        None,
        "none",
    )
    if r["nnodes"] == 1 and not draft_exchanges:
        r.env.setdefault("NVSHMEM_REMOTE_TRANSPORT", "none")
        r.env.setdefault("NVSHMEM_IB_ENABLE_IBGDA", "0")
        r.env.setdefault("NVSHMEM_DISABLE_LOCAL_ONLY_PROXY", "1")


def flashinfer(r: Resolution) -> None:
    """Check ranks and runner of FlashInfer's all-to-all, and settle the type tokens are sent in."""
    if not (runs_attention_dp(r) and r["attn_dp_size"] == r["tp_size"]):
        raise r.reject(
            "Flashinfer MoE A2A requires --attn-dp-size equal to --tp-size, except for Muse Spark TP4/EP4 or "
            "TP8/EP8 prefill sequence parallelism.",
            error="AssertionError",
        )
    if r["deepep_mode"] != "auto":
        r.warn("--deepep-mode is ignored by the FlashInfer all-to-all.")
    bf16_only = r["moe_runner_backend"] == "flashinfer_cutedsl" and r.flag_env(W4A16)
    if bf16_only and r.flag_env(NVFP4_DISPATCH):
        raise r.reject(f"CuTe DSL NVFP4 W4A16 requires BF16 FlashInfer MoE dispatch; unset {NVFP4_DISPATCH}.")
    if r["flashinfer_a2a_dispatch_type"] is None:
        if not bf16_only and NVFP4_DISPATCH not in r.env and _has_nvfp4_experts(r):
            r.env[NVFP4_DISPATCH] = "True"
            r.warn("NVFP4 experts: tokens are dispatched in NVFP4.")
    else:
        _explicit_dispatch(r, bf16_only)
    if r["moe_runner_backend"] not in RUNNERS:
        raise r.reject(
            "FlashInfer MoE A2A is supported with flashinfer_cutlass, flashinfer_cutedsl, flashinfer_trtllm, "
            "flashinfer_trtllm_routed, or deep_gemm.",
            error="AssertionError",
        )


def _has_nvfp4_experts(r: Resolution) -> bool:
    return r["quantization"] == "modelopt_fp4" or has_hybrid_nvfp4_experts(r.model)


def _suitable_dispatch(r: Resolution) -> str:
    if r["quantization"] == "mxfp8":
        return "mxfp8"
    return "nvfp4" if _has_nvfp4_experts(r) else "bf16"


def _explicit_dispatch(r: Resolution, bf16_only: bool) -> None:
    asked = r["flashinfer_a2a_dispatch_type"]
    if r["moe_runner_backend"] == "flashinfer_trtllm":
        r.warn("flashinfer_trtllm_routed runs the experts: the all-to-all brings its own routing.")
        r.set("moe_runner_backend", "flashinfer_trtllm_routed", "The all-to-all brings its own routing.")
    if bf16_only and asked in ("auto", "nvfp4"):
        raise r.reject("CuTe DSL NVFP4 W4A16 requires --flashinfer-a2a-dispatch-type bf16.")
    if NVFP4_DISPATCH in r.env:
        raise r.reject(f"{NVFP4_DISPATCH} cannot be set together with --flashinfer-a2a-dispatch-type.")
    chosen = asked
    if chosen == "auto":
        chosen = _suitable_dispatch(r)
    if chosen == "mxfp8":
        if r["quantization"] != "mxfp8":
            raise r.reject("--flashinfer-a2a-dispatch-type mxfp8 requires --quantization mxfp8.")
        if r["moe_runner_backend"] != "flashinfer_trtllm_routed":
            raise r.reject(
                "--flashinfer-a2a-dispatch-type mxfp8 requires --moe-runner-backend flashinfer_trtllm_routed."
            )
    elif chosen == "nvfp4" and not _has_nvfp4_experts(r):
        raise r.reject(
            "--flashinfer-a2a-dispatch-type nvfp4 requires NVFP4/modelopt-FP4 quantization or hybrid NVFP4 "
            "MoE metadata."
        )
    r.set("flashinfer_a2a_dispatch_type", chosen, "The type that suits the experts' weights.")


def _check_megamoe_model(r: Resolution) -> None:
    architectures = r.model.raw["architectures"]
    if not set(architectures) & set(MEGAMOE_ARCHITECTURES):
        raise r.reject(
            f"FlashInfer MegaMOE is not validated for model architectures {architectures}. Supported "
            f"architectures: {sorted(MEGAMOE_ARCHITECTURES)}."
        )
    quantization = r["quantization"]
    if not (
        quantization in ("mxfp8", "modelopt_fp4")
        or (quantization == "nvfp4_online" and r.flag_env(W4A16))
        or has_mxfp4_experts(r.model)
        or has_hybrid_nvfp4_experts(r.model)
    ):
        raise r.reject(
            "FlashInfer MegaMOE currently supports only MXFP8, ModelOpt NVFP4, FP4-expert, hybrid NVFP4 MoE "
            "checkpoints, or nvfp4_online with SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1; got "
            f"quantization={quantization!r}. Standard FP8 MoE checkpoints are not supported."
        )


def _check_megamoe_environment(r: Resolution) -> None:
    dtype = r.env.get(COMBINE_DTYPE, "bf16").strip().lower()
    if r.flag_env(W4A16) and dtype != "bf16":
        raise r.reject(f"FlashInfer MegaMOE NVFP4 W4A16 requires {COMBINE_DTYPE}=bf16.")
    if dtype not in ("bf16", "mxfp8", "nvfp4"):
        raise r.reject(f"{COMBINE_DTYPE} must be one of 'bf16', 'mxfp8', or 'nvfp4', got {dtype!r}.")
    if dtype != "bf16" and r.flag_env(REDUCE_IN_KERNEL):
        raise r.reject(f"{COMBINE_DTYPE}={dtype!r} is incompatible with {REDUCE_IN_KERNEL}=1.")
