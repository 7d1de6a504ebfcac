"""Qwen3-Next: gated delta nets, gated attention, a mixture of experts with one gated shared expert."""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.cache import HeadCache
from perilune.plan.model.geometry.gdn import text_model
from perilune.plan.model.geometry.layout import layout_of

ARCHITECTURES = ("Qwen3NextForCausalLM",)


def build(config: ModelConfig) -> Geometry:
    """The geometry of a Qwen3-Next checkpoint; raises UnusableInput naming a field that cannot be used."""
    tensors, experts, sizes = text_model(config, layout_of(config))
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=config.linear_layers,
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=sizes.units(config),
        experts=experts,
        state=sizes.state,
        cache=HeadCache(config.num_kv_heads, config.head_dim, config.head_dim),
        excluded="the MTP layer",
        source="SGLang 0.5.23 models/qwen3_next.py",
    )
