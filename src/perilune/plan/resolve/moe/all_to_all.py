"""How tokens travel to their experts: one rule set per all-to-all backend.

Source: SGLang 0.5.23 `arg_groups/moe_hook.py` (`handle_a2a_moe`), `overrides.py`,
`configs/moe_model_registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.graph_config import DISABLED
from perilune.plan.resolve.graphs import disable_graphs, set_phase
from perilune.plan.resolve.moe.flashinfer import flashinfer, flashinfer_megamoe
from perilune.plan.resolve.state import Resolution

EXPERTS_SPAN_TP: Final = frozenset(
    {
        "megamoe",
        "deepep",
        "deepep_v2",
        "mooncake",
        "nixl",
        "ascend_fuseep",
        "flashinfer",
        "flashinfer_megamoe",
        "mori",
        "pplx",
    }
)
DEEPEP_V2_ARCHITECTURES: Final = frozenset({"DeepseekV3ForCausalLM", "Glm5NextForConditionalGeneration"})
SEPARATE_SHARED_EXPERTS: Final = frozenset({"flashinfer", "flashinfer_megamoe", "deepep_v2"})
MORI_EP_V2: Final = "SGLANG_MORI_EP_V2"


def a2a(r: Resolution) -> None:
    """Settle the expert all-to-all, the expert-parallel width it implies, and what it rules out."""
    if r["enable_waterfill"] and r["moe_a2a_backend"] not in ("deepep", "megamoe"):
        r.warn("Waterfill needs the DeepEP or MegaMoE all-to-all; DeepEP is used.")
        r.set("moe_a2a_backend", "deepep", "Waterfill needs DeepEP or MegaMoE.")
    backend = r["moe_a2a_backend"]
    if backend in EXPERTS_SPAN_TP:
        r.set("ep_size", r["tp_size"], f"Experts under {backend} span the tensor-parallel group.")
    _shared_experts(r, backend)
    if backend != "flashinfer" and r["flashinfer_a2a_dispatch_type"] not in (None, "auto"):
        raise r.reject("--flashinfer-a2a-dispatch-type requires --moe-a2a-backend flashinfer.")
    if backend in HANDLERS:
        HANDLERS[backend](r)
    if backend == "ascend_tp" or (backend == "none" and machine.is_npu(r.platform)):
        r.set("moe_a2a_backend", "none", "Tensor parallelism is what runs on Ascend without an all-to-all.")


def _shared_experts(r: Resolution, backend: str) -> None:
    if r["enable_waterfill"]:
        if r["disable_shared_experts_fusion"]:
            r.set("disable_shared_experts_fusion", False, "Waterfill needs fused shared experts.")
        r.set("enforce_shared_experts_fusion", True, "Waterfill needs fused shared experts.")
    elif backend in SEPARATE_SHARED_EXPERTS:
        reason = f"{backend} runs shared experts apart."
        r.warn(f"Shared-expert fusion is off: {reason}.")
        r.set("disable_shared_experts_fusion", True, reason)


def _deepep(r: Resolution) -> None:
    if r["moe_runner_backend"] == "flashinfer_cutedsl":
        if r["deepep_mode"] == "auto":
            r.warn("DeepEP runs in low-latency mode only: FlashInfer CuteDSL has no handler for normal mode.")
            r.set("deepep_mode", "low_latency", "FlashInfer CuteDSL has no handler for normal mode.")
        elif r["deepep_mode"] == "normal":
            raise r.reject(
                "flashinfer_cutedsl FP4 MoE only supports DeepEP low_latency dispatch (masked layout). "
                "DeepEP normal (prefill) dispatch has no CuteDSL FP4 handler. Pass --deepep-mode low_latency "
                "or auto."
            )
    if r["deepep_mode"] == "normal":
        r.warn("CUDA graphs are off: DeepEP in normal mode cannot be captured.")
        disable_graphs(r, "DeepEP in normal mode cannot be captured.")


def _deepep_v2(r: Resolution) -> None:
    architecture = r.model.architecture
    if architecture not in DEEPEP_V2_ARCHITECTURES:
        raise r.reject(
            f"DeepEP v2 MoE is not validated for {architecture!r}. The model package must register its "
            "architecture with register_deepep_v2_model, because its combine and post-expert reduction "
            "semantics must be validated first."
        )
    r.env.setdefault("NCCL_CUMEM_ENABLE", "1")
    runner = r["moe_runner_backend"]
    if runner == "auto":
        r.set("moe_runner_backend", "deep_gemm", "The only runner of DeepEP v2.")
        r.warn("DeepEP v2 runs its experts on deep_gemm.")
    elif runner != "deep_gemm":
        raise r.reject(
            f"DeepEP v2 MoE currently supports only --moe-runner-backend deep_gemm. Got {runner!r}. Add a "
            "runner adapter before enabling DeepEP v2 with other MoE runners."
        )
    if r["enable_two_batch_overlap"] or r["enable_single_batch_overlap"]:
        raise r.reject(
            "DeepEP v2 MoE has not implemented the TBO/SBO overlap hooks yet. Disable "
            "--enable-two-batch-overlap and --enable-single-batch-overlap when using --moe-a2a-backend "
            "deepep_v2."
        )
    if r["enforce_shared_experts_fusion"]:
        raise r.reject(
            "DeepEP v2 MoE has not validated fused shared experts yet. Remove "
            "--enforce-shared-experts-fusion when using --moe-a2a-backend deepep_v2."
        )
    if r["deepep_v2_mode"] == "direct" and r["nnodes"] > 1:
        raise r.reject(
            "--deepep-v2-mode direct is NVLink-only and cannot run across nodes "
            f"(nnodes={r['nnodes']}); pass --deepep-v2-mode hybrid."
        )
    r.warn("DeepEP v2 captures decode only; its buffer bounds the tokens a rank may dispatch.")
    set_phase(r, "prefill", "DeepEP v2 prefill cannot be captured.", backend=DISABLED)


def _mori(r: Resolution) -> None:
    second_version = _uses_mori_ep_v2(r)
    mode = r["deepep_mode"]
    if mode == "auto" or (second_version and mode == "low_latency"):
        r.warn("MoRI dispatches in normal mode.")
        r.set("deepep_mode", "normal", "The mode MoRI runs in.")
    chunk, room = r["chunked_prefill_size"], r.int_env("SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 4096)
    if chunk > 0 and r["disaggregation_mode"] != "decode" and chunk > room:
        raise r.reject(
            "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 4096) must be >= the per-rank MoRI "
            "dispatch tokens (chunked_prefill_size by default)",
            error="AssertionError",
        )


def _uses_mori_ep_v2(r: Resolution) -> bool:
    """Only when it is asked for: version 2 is validated for a model that is not modelled, DeepSeek-V4."""
    if MORI_EP_V2 in r.env and r.flag_env(MORI_EP_V2, default=True):
        r.warn(f"{MORI_EP_V2} forces MoRI EPv2, which is validated for DeepSeek-V4 only.")
        return True
    if MORI_EP_V2 not in r.env:
        r.warn("MoRI EPv1 is used: EPv2 is validated for DeepSeek-V4 only.")
        r.env[MORI_EP_V2] = "False"
    return False


def _pplx(r: Resolution) -> None:
    if r["deepep_mode"] == "normal":
        raise r.reject(
            "moe_a2a_backend='pplx' only supports low-latency mode; set --deepep-mode to 'low_latency' or 'auto'."
        )
    if r["deepep_mode"] == "auto":
        r.warn("pplx dispatches in low-latency mode.")
        r.set("deepep_mode", "low_latency", "The only mode of pplx.")
    if r["attn_dp_size"] < 2:
        raise r.reject(
            "moe_a2a_backend='pplx' requires attention DP with at least 2 groups (--attn-dp-size >= 2).",
            error="AssertionError",
        )
    if r["moe_runner_backend"] not in ("deep_gemm", "auto"):
        raise r.reject(
            "moe_a2a_backend='pplx' is only supported with --moe-runner-backend deep_gemm (or auto).",
            error="AssertionError",
        )
    if r["moe_runner_backend"] == "auto":
        r.warn("pplx runs its experts on deep_gemm.")
        r.set("moe_runner_backend", "deep_gemm", "The only runner of pplx.")
    chunk = r["chunked_prefill_size"]
    tokens = max(chunk, r["cuda_graph_max_bs_decode"] or chunk)
    room = r.int_env("SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128)
    if chunk > 0 and r["disaggregation_mode"] != "decode" and tokens > room:
        raise r.reject(
            "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 128) must be >= the per-rank pplx "
            "dispatch tokens (chunked_prefill_size, or the decode cuda-graph batch size)",
            error="AssertionError",
        )


HANDLERS: Final[Mapping[str, Callable[[Resolution], None]]] = {
    "deepep": _deepep,
    "deepep_v2": _deepep_v2,
    "flashinfer": flashinfer,
    "flashinfer_megamoe": flashinfer_megamoe,
    "mori": _mori,
    "pplx": _pplx,
}
