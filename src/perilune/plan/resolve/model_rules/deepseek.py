"""The DeepSeek family: attention, context parallelism, MoE runner; with sparse attention see `dsa.py`.

Source: SGLang 0.5.23 `arg_groups/model_overrides/deepseek_v2.py`, `model_hook.py`, `glm5_next_hook.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.traits import has_sparse_attention
from perilune.plan.resolve import machine
from perilune.plan.resolve.graph_config import DISABLED
from perilune.plan.resolve.graphs import set_phase
from perilune.plan.resolve.model_rules import dsa
from perilune.plan.resolve.quantization import take_checkpoint_method
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_unset

FUSED_MOE_QUANTIZATION: Final = (None, "fp8", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed")
INT4_GROUPS: Final = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}


def defaults(r: Resolution) -> None:
    """Everything the family decides, where no other rule comes in between."""
    declare(r)
    adjust(r)


def declare(r: Resolution) -> None:
    """Settle the attention backend and the layout of prefill context parallelism."""
    if has_sparse_attention(r.model):
        dsa.declare(r)
        return
    if machine.is_sm100(r.platform) and attention_unset(r):
        r.set("attention_backend", "trtllm_mla", "The fastest for MLA on Blackwell.")
    if r["enable_prefill_cp"] and r.model.is_mla:
        dsa.lay_out_context_parallelism(r, "MLA context parallelism", dense=True)


def glm5_next_verify(r: Resolution) -> None:
    """GLM-5.3-Flash verifies drafts with CuTeDSL on Blackwell."""
    unset = r["linear_attn_verify_backend"] is None
    if r["speculative_algorithm"] is not None and unset and machine.is_sm100(r.platform):
        r.set("linear_attn_verify_backend", "nv_cutedsl", "It verifies a whole draft block in one kernel.")


def adjust(r: Resolution) -> None:
    """Settle sparse-attention kernels, graphs under context parallelism, quantization and MoE runners."""
    sparse = has_sparse_attention(r.model)
    if sparse:
        dsa.adjust(r)
    elif r["enable_prefill_cp"] and r.model.is_mla:
        set_phase(r, "prefill", "Not captured under prefill context parallelism.", backend=DISABLED)
    if machine.is_sm100(r.platform):
        _settle_moe_runner(r)
    if machine.is_hip(r.platform):
        if sparse:
            r.env.setdefault("SGLANG_OPT_USE_TOPK_V2", "False")
        _settle_fusion_on_rocm(r)
        _settle_draft_moe_on_rocm(r)


def _settle_moe_runner(r: Resolution) -> None:
    method = take_checkpoint_method(r)
    fused = r["quantization"] in FUSED_MOE_QUANTIZATION or _is_int4(r.model, method)
    if r["moe_a2a_backend"] == "none" and r["moe_runner_backend"] == "auto" and fused:
        r.set("moe_runner_backend", "flashinfer_trtllm", "TRT-LLM has MoE kernels for Blackwell.")


def _is_int4(model: ModelConfig, method: str | None) -> bool:
    groups = (model.quantization_config or {}).get("config_groups")
    group = groups.get("group_0") if isinstance(groups, Mapping) else None
    weights = group.get("weights") if isinstance(group, Mapping) else None
    return (
        method == "compressed-tensors"
        and isinstance(weights, Mapping)
        and all(weights.get(name) == value for name, value in INT4_GROUPS.items())
    )


def _settle_fusion_on_rocm(r: Resolution) -> None:
    single = r["attn_dp_size"] == 1 and r["ep_join_mode"] != "scale" and r["nnodes"] == 1
    if single and r.model.architecture == "GlmMoeDsaForCausalLM":
        r.set("enable_aiter_allreduce_fusion", True, "Decode can fuse all-reduce with aiter.")
        r.set("disable_aiter_allreduce_fusion_in_prefill", True, "Only decode gains from it.")


def _settle_draft_moe_on_rocm(r: Resolution) -> None:
    unset = None in (r["speculative_moe_runner_backend"], r["speculative_moe_a2a_backend"])
    if not (r["quantization"] == "modelopt_fp4" and r["speculative_algorithm"] == "EAGLE" and unset):
        return
    runner, a2a = "triton", "none"
    if r.flag_env("SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE"):
        if r["ep_size"] == 1:
            raise r.reject(
                "Invalid configuration: 'deep_gemm' speculative MoE runner backend with 'deepep' a2a backend "
                f"requires expert parallelism (ep_size > 1). Current ep_size is {r['ep_size']}. "
                "Please set --ep-size > 1 (e.g., --ep-size 8) to use this configuration, or change "
                "--speculative-moe-a2a-backend to 'none' if expert parallelism is not available."
            )
        runner, a2a = "deep_gemm", "deepep"
    r.set("speculative_moe_runner_backend", runner, "The draft layer of an FP4 checkpoint is BF16.")
    r.set("speculative_moe_a2a_backend", a2a, "The draft layer of an FP4 checkpoint is BF16.")
