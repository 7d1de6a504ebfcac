"""Llama: grouped-query attention and a gated MLP in every layer. Source: SGLang 0.5.23 models/llama.py."""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import MAX_DIM, gated_mlp, grouped_query, layer_norms, token_tables
from perilune.plan.model.geometry.cache import HeadCache
from perilune.plan.model.geometry.layout import layout_of
from perilune.plan.model.geometry.tensors import EMBEDDING_TP, Owner, Units, rotary_table

ARCHITECTURES = ("LlamaForCausalLM",)


def build(config: ModelConfig) -> Geometry:
    """The geometry of a Llama checkpoint; raises UnusableInput naming a field that cannot be used."""
    f, layout, hidden = config.fields, layout_of(config), config.hidden_size
    every = Owner(tuple(range(config.num_layers)))
    inner = f.integer("intermediate_size", high=MAX_DIM)
    tensors = [
        *token_tables(config, layout.head, EMBEDDING_TP),
        *layer_norms(config, every),
        *grouped_query(config, every, layout.attention, over="TP", bias=f.flag("attention_bias")),
        *gated_mlp(hidden, inner, every, layout.dense, ("TP", "dense MLP")),
        rotary_table(f.integer("max_position_embeddings", high=1 << 28), config.head_dim),
    ]
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=(),
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=(Units(config.num_heads, "TP", "attention heads"),),
        cache=HeadCache(config.num_kv_heads, config.head_dim, config.head_dim),
        source="SGLang 0.5.23 models/llama.py",
    )
