"""Nemotron-H: quantization, MoE runner, attention backend.

Source: SGLang 0.5.23 `arg_groups/model_overrides/nemotron_h.py`.
"""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.resolve import machine
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.quantization import layer_algorithms
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_unset

DRAFTS_WITH_ATTENTION = ("EAGLE", "NEXTN", "DSPARK")


def defaults(r: Resolution) -> None:
    """Settle quantization and MoE runner, then the attention backend on Blackwell."""
    method = _settle_quantization(r)
    _settle_moe_runner(r, method)
    if machine.is_sm100(r.platform) and attention_unset(r):
        _settle_attention(r)


def _settle_quantization(r: Resolution) -> str | None:
    """The ModelOpt method of the checkpoint, which is also written into the arguments; None for others."""
    method = engine_model(r).quantization
    if method is None or not method.startswith("modelopt"):
        return None
    if r.model.text.get("mlp_hidden_act") != "relu2":
        raise r.reject("", error="AssertionError")
    if method == "modelopt":
        algorithm = str((r.model.quantization_config or {}).get("quant_algo"))
        method = {"MIXED_PRECISION": "modelopt_mixed", "NVFP4": "modelopt_fp4"}.get(algorithm, "modelopt_fp8")
    r.set("quantization", method, "The checkpoint is stored that way.")
    return method


def _settle_moe_runner(r: Resolution, method: str | None) -> None:
    remapped = r["enable_eplb"] or r["ep_num_redundant_experts"] > 0 or r["init_expert_location"] != "trivial"
    if remapped:
        _check_remap(r)
    runner, a2a, sm100 = r["moe_runner_backend"], r["moe_a2a_backend"], machine.is_sm100(r.platform)
    if method == "modelopt_mixed" and _has_w4a16_experts(r.model):
        if a2a != "none":
            raise r.reject("W4A16_NVFP4 MoE layers require --moe-a2a-backend=none.")
        if runner not in ("auto", "marlin"):
            raise r.reject("W4A16_NVFP4 MoE layers require --moe-runner-backend=marlin.")
        if runner == "auto":
            r.set("moe_runner_backend", "marlin", "The experts are W4A16 NVFP4.")
        return
    if runner != "auto":
        return
    if remapped and sm100 and a2a == "none":
        r.set("moe_runner_backend", "flashinfer_trtllm_routed", "It can route to moved experts.")
    elif method is not None or engine_model(r).quantization is None:
        runner, reason = _runner_for(r, method, sm100 and a2a == "none")
        r.set("moe_runner_backend", runner, reason)


def _runner_for(r: Resolution, method: str | None, trtllm: bool) -> tuple[str, str]:
    if trtllm:
        return "flashinfer_trtllm", "TRT-LLM has MoE kernels for Blackwell."
    if machine.is_sm90(r.platform) and method in ("modelopt_fp4", "modelopt_mixed"):
        return "marlin", "FP4 experts run as W4A16 on Hopper."
    return "flashinfer_cutlass", "The general MoE kernel for this checkpoint."


def _settle_attention(r: Resolution) -> None:
    algorithm = r["speculative_algorithm"]
    if algorithm is None:
        r.set("attention_backend", "trtllm_mha", "The fastest on Blackwell.")
        return
    draft_unset = r["speculative_draft_attention_backend"] is None
    if r["speculative_eagle_topk"] in (None, 1):
        r.set("attention_backend", "trtllm_mha", "The fastest on Blackwell.")
        if r["page_size"] is None:
            r.set("page_size", 64, "trtllm_mha needs pages.")
        if r["mamba_radix_cache_strategy"] == "auto":
            r.set("mamba_radix_cache_strategy", "extra_buffer", "Paged KV needs state snapshots.")
        if draft_unset and algorithm.upper() in DRAFTS_WITH_ATTENTION:
            r.set("speculative_draft_attention_backend", "trtllm_mha", "The fastest on Blackwell.")
        return
    r.set("attention_backend", "triton", "trtllm_mha cannot verify a draft tree.")
    if draft_unset and algorithm.upper() in (*DRAFTS_WITH_ATTENTION, "DFLASH"):
        r.set("speculative_draft_attention_backend", "flashinfer", "The draft proposes a tree.")


def _check_remap(r: Resolution) -> None:
    if r["moe_runner_backend"] == "flashinfer_trtllm":
        raise r.reject(
            "flashinfer_trtllm routes inside the kernel and does not support EPLB or redundant experts on "
            "Nemotron-H; use --moe-runner-backend flashinfer_trtllm_routed."
        )
    cutedsl = r["moe_runner_backend"] == "flashinfer_cutedsl" and r["moe_a2a_backend"] == "none"
    if r["enable_eplb"] and cutedsl:
        raise r.reject(
            "flashinfer_cutedsl without an a2a backend does not migrate its expert scales on EPLB rebalance; "
            "use --moe-runner-backend flashinfer_trtllm_routed or set --moe-a2a-backend."
        )


def _has_w4a16_experts(model: ModelConfig) -> bool:
    layers = layer_algorithms(model.quantization_config or {})
    return any(algorithm == "W4A16_NVFP4" and ".experts." in name for name, algorithm in layers)
