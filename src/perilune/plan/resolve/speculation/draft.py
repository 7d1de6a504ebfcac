"""What the draft's `config.json` decides. Source: SGLang 0.5.23 dflash_utils.py, dspark_config.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perilune.plan.model.config import ModelConfig
from perilune.plan.resolve.state import Resolution

GEMMA4_ASSISTANTS = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})
BUNDLED_KEYS = (
    "dspark_block_size",
    "dspark_markov_rank",
    "dspark_noise_token_id",
    "dspark_target_layer_ids",
)
MARKOV_HEADS = frozenset({"vanilla", "gated", "rnn"})


def is_gemma4_assistant(r: Resolution) -> bool:
    """Whether the draft is Gemma 4's assistant, which shares the target's KV."""
    if not r["speculative_draft_model_path"] or r.draft is None:
        return False
    return not GEMMA4_ASSISTANTS.isdisjoint(r.draft.raw.get("architectures") or ())


def is_bundled(model: ModelConfig) -> bool:
    """Whether the target checkpoint carries its own DSPARK draft head."""
    return any(model.raw.get(key) is not None for key in BUNDLED_KEYS)


def draft_config(r: Resolution) -> Mapping[str, Any]:
    """The draft's config, or the target's that bundles it, with `--json-model-override-args` on top."""
    raw = (r.draft or r.model).raw
    overrides = json.loads(r["json_model_override_args"])  # the target's config has taken them already
    return {**raw, **overrides} if overrides else raw


def block_size(config: Mapping[str, Any]) -> int | None:
    """Tokens a DFLASH draft proposes per step, or None when the config names none that can be read."""
    nested = config.get("dflash_config")
    nested = nested if isinstance(nested, Mapping) else {}
    size = _integer(nested.get("block_size", config.get("block_size")))
    return size if size is not None and size >= 1 else None


def gamma(config: Mapping[str, Any]) -> int | None:
    """Tokens a DSPARK draft proposes per step, or None when the config names none that can be read."""
    if not _markov_is_sound(config):
        return None
    prefixed = config.get("dspark_block_size")
    return block_size(config) if prefixed is None else _integer(prefixed)


def _markov_is_sound(config: Mapping[str, Any]) -> bool:
    bundled = any(config.get(key) is not None for key in BUNDLED_KEYS)
    rank = _integer(_markov(config, "markov_rank") or 0)
    head = _markov(config, "markov_head_type")
    if rank is None or rank < 0:
        return False
    if head is None:
        return rank == 0 or bundled
    return str(head).lower() in MARKOV_HEADS


def _markov(config: Mapping[str, Any], key: str) -> Any:
    """A Markov-head field, from the most specific section that names it."""
    if config.get(f"dspark_{key}") is not None:
        return config[f"dspark_{key}"]
    for name in ("dspark_config", "dflash_config", "text_config"):
        section = config.get(name)
        if isinstance(section, Mapping) and key in section:
            return section[key]
    return config.get(key)


def attends_locally_or_causally(config: Mapping[str, Any]) -> bool:
    """Whether every draft layer has a sliding window or the draft is causal, as trtllm_mha needs."""
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else config
    if text.get("is_causal") is True:
        return True
    layers = text.get("layer_types", config.get("layer_types"))
    if not isinstance(layers, list | tuple) or not layers:
        return False
    return len(layers) == text.get("num_hidden_layers") and set(layers) == {"sliding_attention"}


def _integer(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
