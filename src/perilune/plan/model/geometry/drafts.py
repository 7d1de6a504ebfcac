"""Draft models that propose a block at a time: DSPARK and DFLASH, with grouped-query or latent attention.

They read the hidden states of a few target layers through `fc` and share the target's embedding and head.
Sources: SGLang 0.5.23 models/dspark.py and dflash.py; the published counts of each draft.
"""

from __future__ import annotations

from collections.abc import Mapping

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import (
    MAX_DIM,
    Mla,
    gated_mlp,
    grouped_query,
    layer_norms,
    mla,
)
from perilune.plan.model.geometry.cache import Cache, HeadCache, LatentCache
from perilune.plan.model.geometry.tensors import LAST, WHOLE, Owner, Tensors, Units, rotary_table

ARCHITECTURES = (
    "DSparkDraftModel",
    "Qwen3DSparkModel",
    "LingDSparkModel",
    "DFlashDraftModel",
    "K3DSparkModel",
)
OVER = "draft TP"


def build(config: ModelConfig) -> Geometry:
    """The geometry of a draft; raises UnusableInput naming a field that cannot be used."""
    f, hidden = config.fields, config.hidden_size
    every = Owner(tuple(range(config.num_layers)))
    attention, cache, rotary = _attention(config, every)
    inner = f.integer("intermediate_size", high=MAX_DIM)
    features = _features(config)
    tensors = [
        *layer_norms(config, every),
        *attention,
        *gated_mlp(hidden, inner, every, kind=(OVER, "dense MLP")),
        Tensors("fc", "target features", hidden, features * hidden, LAST, WHOLE),
        Tensors("final and feature norm", "norms", hidden, 1, LAST, count=2),
        *_markov(config),
    ]
    if rotary:
        tensors.append(rotary_table(f.integer("max_position_embeddings", high=1 << 28, default=32_768), rotary))
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=(),
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=(Units(config.num_heads, OVER, "attention heads"),),
        cache=cache,
        excluded="a copy of the target's embedding, where the checkpoint holds one",
        source="SGLang 0.5.23 models/dspark.py and dflash.py",
    )


def _attention(config: ModelConfig, every: Owner) -> tuple[list[Tensors], Cache, int]:
    f = config.fields
    if f.has("kv_lora_rank"):
        m = Mla.read(f, config.num_heads)
        return mla(m, config.hidden_size, every, over=OVER), LatentCache(m.kv_rank, m.rope), m.rope
    heads = grouped_query(config, every, over=OVER, qk_norm=True, bias=f.flag("attention_bias"))
    return heads, HeadCache(config.num_kv_heads, config.head_dim, config.head_dim), config.head_dim


def _features(config: ModelConfig) -> int:
    """How many target layers feed the draft: those it lists, else one per layer of its own."""
    section = config.raw.get("dflash_config")
    for source in (section, config.text):
        listed = source.get("target_layer_ids") if isinstance(source, Mapping) else None
        if isinstance(listed, list) and 0 < len(listed) <= 10_000:
            return len(listed)
    return config.num_layers


def _markov(config: ModelConfig) -> list[Tensors]:
    """DSPARK's two Markov tables, whole on every GPU; the confidence head is not built for static verification."""
    f = config.fields
    rank = f.integer("markov_rank", low=0, high=1 << 20, default=0)
    if not rank:
        return []
    found = [Tensors("markov tables", "Markov tables", config.vocab_size, rank, LAST, count=2)]
    if f.flag("enable_confidence_head"):
        width = config.hidden_size + (rank if f.flag("confidence_head_with_markov", default=True) else 0)
        found.append(Tensors("confidence head", "confidence head", width + 1, 1, LAST, resident=None))
    return found
