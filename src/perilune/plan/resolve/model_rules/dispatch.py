"""The rules every model passes through, in the engine's order, and which family adds its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from perilune.errors import UnusableInput
from perilune.plan.model.traits import has_sparse_attention
from perilune.plan.resolve import machine, mamba
from perilune.plan.resolve.engine_model import engine_model
from perilune.plan.resolve.model_rules import deepseek, kimi, kimi_k3, nemotron_h, qwen
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp

Rule = Callable[[Resolution], None]

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "KimiK3ForConditionalGeneration": (kimi_k3.attention, kimi_k3.moe_runner, kimi.linear_attention),
    "KimiLinearForCausalLM": (kimi.linear_attention,),
    "Qwen3NextForCausalLM": (qwen.hybrid_attention, qwen.moe_runner),
    "Qwen3_5ForConditionalGeneration": (qwen.hybrid_attention, qwen.moe_runner),
    "Qwen3_5MoeForConditionalGeneration": (qwen.hybrid_attention, qwen.moe_runner),
    "Qwen3_5ForCausalLM": (),
    "Qwen3_5MoeForCausalLM": (),
    "NemotronHForCausalLM": (nemotron_h.defaults,),
    "DeepseekV3ForCausalLM": (deepseek.defaults,),
    "Glm5NextForConditionalGeneration": (deepseek.declare, deepseek.glm5_next_verify, deepseek.adjust),
    "LlamaForCausalLM": (),
}
ALLREDUCE_FUSION_ARCHITECTURES: Final = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "NemotronHForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
CP_DECODE_ATTENTION_TP: Final = (
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForCausalLMDSpark",
    "DeepseekV4ForCausalLMNextN",
    "GlmMoeDsaForCausalLM",
    "GlmMoeDsaForCausalLMNextN",
)


def model_specific(r: Resolution) -> None:
    """Apply the model's own defaults and refusals, its state cache strategy, and all-reduce fusion."""
    if r["enable_deterministic_inference"]:
        r.set("enforce_disable_flashinfer_allreduce_fusion", True, "Fused all-reduce is not deterministic.")
    r.set("uses_mamba_radix_cache", False, "Unless the model turns out to keep a recurrent state.")
    engine_model(r)
    rules = RULES.get(r.model.architecture)
    if rules is None:
        raise UnusableInput(
            f"The architecture {r.model.architecture} is not modelled.",
            where=r.model.path,
            fix=f"Modelled: {', '.join(RULES)}.",
        )
    _refuse_other_models(r)
    for rule in rules:
        rule(r)
    mamba.radix_cache(r)
    if "SGLANG_EMBEDDINGS_SPARSE_HEAD" in r.env:
        r.warn("Overlap scheduling is off: a sparse embedding head does not work with it.")
        r.set("disable_overlap_schedule", True, "A sparse embedding head does not work with overlap.")
    _settle_allreduce_fusion(r)


def model_capability(r: Resolution) -> None:
    """Refuse what only one other model can do."""
    if r["enable_encoder_swa_bounded_replay"]:
        raise r.reject("--enable-encoder-swa-bounded-replay requires DeepSeek-V4.1")


def _refuse_other_models(r: Resolution) -> None:
    architecture, sparse = r.model.architecture, has_sparse_attention(r.model)
    if machine.is_npu(r.platform) and r["dcp_size"] > 1 and not sparse:
        raise r.reject(
            "NPU decode context parallelism is currently implemented only for DeepSeek DSA models; got "
            f"{architecture}. Set --decode-context-parallel-size=1 or use a DSA model."
        )
    if r["enable_dsa_cache_layer_split"] and not sparse:
        raise r.reject("--enable-dsa-cache-layer-split is only supported for DSA (DeepSeek Sparse Attention) models.")
    if r["enable_cp_decode_attn_tp"] and architecture not in CP_DECODE_ATTENTION_TP:
        raise r.reject(
            "--enable-cp-decode-attn-tp is only supported for models whose attention linears are replicated "
            f"across CP ranks (attn_tp_size=1). Got {architecture}; supported: "
            f"{list(CP_DECODE_ATTENTION_TP)}."
        )


def _settle_allreduce_fusion(r: Resolution) -> None:
    sm100 = machine.is_sm100(r.platform)
    if (
        r["flashinfer_allreduce_fusion_backend"] is None
        and r.model.architecture in ALLREDUCE_FUSION_ARCHITECTURES
        and (sm100 or machine.is_sm90(r.platform))
        and r["tp_size"] > 1
        and not runs_attention_dp(r)
        and (r["nnodes"] == 1 or sm100)
        and r["moe_a2a_backend"] == "none"
    ):
        r.set("flashinfer_allreduce_fusion_backend", "auto", "The model can fuse all-reduce with its norms.")
    if r["enforce_disable_flashinfer_allreduce_fusion"]:
        r.set("flashinfer_allreduce_fusion_backend", None, "All-reduce fusion is ruled out.")
