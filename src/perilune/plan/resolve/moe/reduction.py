"""Which collective closes a layer. Source: SGLang 0.5.23 `arg_groups/boundary_reduction.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perilune.plan.resolve.speculation.draft import draft_config
from perilune.plan.resolve.state import Resolution

REDUCE_SCATTER_V: Final = frozenset(
    {
        "BailingMoELinearForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "LongcatFlashForCausalLM",
        "LongcatFlashForCausalLMNextN",
        "Step3VLForConditionalGeneration",
    }
)
ALL_REDUCE: Final = frozenset(
    {
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3ForSequenceClassification",
        "Qwen3Model",
        "Qwen3ForRewardModel",
        "MossVLForCausalLM",
        "MossVLForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "Qwen4ExpForCausalLMMTP",
    }
)
ALL_REDUCE_TYPES: Final = frozenset({"qwen3", "qwen3_vl_text"})
DEFAULT: Final = "rs+rsv"


def boundary_reduction(r: Resolution) -> None:
    """Settle the collective at layer boundaries for the target and for the draft."""
    asked = r["boundary_reduction"]
    target = draft = asked
    if asked == "auto":
        target = draft = preferred(r.model.raw)
        path = r["speculative_draft_model_path"]
        if r["speculative_algorithm"] is not None and path is not None and path != r["model_path"]:
            draft = preferred(draft_config(r))
    r.set("boundary_reduction", target, "The collective this model is built for.")
    r.set("speculative_boundary_reduction", draft, "The collective the draft is built for.")


def preferred(config: Mapping[str, Any]) -> str:
    """The collective for a config: by architecture, else by the type of its language model."""
    architectures = set(config.get("architectures") or ())
    if architectures & REDUCE_SCATTER_V:
        return "rsv"
    if architectures & ALL_REDUCE or config.get("model_type") in ALL_REDUCE_TYPES:
        return "ar"
    for name in ("text_config", "llm_config", "language_config"):
        nested = config.get(name)
        if isinstance(nested, Mapping):
            return preferred(nested)
    return DEFAULT
