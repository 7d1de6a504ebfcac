"""Kinds of attention that only a few resolution rules ask about. Source: SGLang 0.5.23 model_config.py."""

from __future__ import annotations

from collections.abc import Mapping

from perilune.plan.model.config import ModelConfig

SPARSE_ATTENTION_ARCHITECTURES = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Dots3NoteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "HYV4ForCausalLM",
        "LongcatFlashForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
    }
)
SLIDING_WINDOW_ARCHITECTURES = frozenset(
    {
        "DeepseekV4ForCausalLM",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "GptOssForCausalLM",
        "Llama4ForConditionalGeneration",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
    }
)


def is_hybrid_swa(model: ModelConfig, *, disabled: bool = False) -> bool:
    """Whether the model keeps sliding-window layers in a pool of their own (`disabled` by the user)."""
    declared = model.architecture in SLIDING_WINDOW_ARCHITECTURES or bool(model.text.get("is_hybrid_swa"))
    return declared and not disabled


def has_sparse_attention(model: ModelConfig) -> bool:
    """Whether the model is a DeepSeek-sparse-attention (DSA) one: a known family with `index_topk`."""
    known = model.architecture in SPARSE_ATTENTION_ARCHITECTURES
    return known and any(section.get("index_topk") is not None for section in (model.raw, model.text))


def has_kda(model: ModelConfig) -> bool:
    """Whether some layers are Kimi delta attention, as the engine tells it from the config."""
    for section in (model.raw, model.text):
        linear = section.get("linear_attn_config")
        if isinstance(linear, Mapping) and linear.get("kda_layers"):
            return True
        sizes = (section.get("linear_num_heads"), section.get("linear_head_dim"))
        if None not in sizes and "linear_attention" in (section.get("layer_types") or ()):
            return True
    return False


def has_asymmetric_kv(model: ModelConfig) -> bool:
    """Whether a key row and a value row of an MHA model differ in width, as in MiMo-V2."""
    text = model.text
    heads = text.get("num_attention_heads") or 1
    key = text.get("head_dim") or int(text.get("hidden_size", 0)) // heads
    value = text.get("v_head_dim") or key
    window_key = text.get("swa_head_dim") or key
    window_value = text.get("swa_v_head_dim") or window_key
    return bool(key != value or window_key != window_value)
