"""DeepSeek-V3: latent attention with rotary keys in every layer, experts with one shared expert.

Source: SGLang 0.5.23 models/deepseek_v2.py.
"""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import (
    MAX_DIM,
    SHARED,
    Mla,
    gated_mlp,
    layer_norms,
    mla,
    router,
    token_tables,
)
from perilune.plan.model.geometry.cache import LatentCache
from perilune.plan.model.geometry.experts import Experts
from perilune.plan.model.geometry.kimi_k3 import moe_layers
from perilune.plan.model.geometry.layout import layout_of
from perilune.plan.model.geometry.tensors import Owner, Units, rotary_table

ARCHITECTURES = ("DeepseekV3ForCausalLM",)
DENSE_OR_WHOLE = ("dense TP or whole", "dense MLP")


def build(config: ModelConfig) -> Geometry:
    """The geometry of a DeepSeek-V3 checkpoint; raises UnusableInput naming a field that cannot be used."""
    f, layout, hidden = config.fields, layout_of(config), config.hidden_size
    every = Owner(tuple(range(config.num_layers)))
    dense, moe = moe_layers(config)
    latent = Mla.read(f, config.num_heads)
    inner = f.integer("moe_intermediate_size", high=MAX_DIM)
    shared = f.integer("n_shared_experts", low=0, high=1024, default=0)
    tensors = [
        *token_tables(config, layout.head),
        *layer_norms(config, every),
        *mla(latent, hidden, every, layout.attention),
        *gated_mlp(hidden, f.integer("intermediate_size", high=MAX_DIM), Owner(dense), layout.dense, DENSE_OR_WHOLE),
        *router(config.num_experts, hidden, Owner(moe)),
    ]
    if shared:
        tensors += gated_mlp(hidden, shared * inner, Owner(moe), layout.shared, SHARED)
    if latent.rope:
        tensors.append(rotary_table(config.context_length, latent.rope))
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=(),
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=(Units(latent.heads, "attention TP", "MLA heads"),),
        experts=Experts(moe, config.num_experts, hidden, inner, True, layout.experts, layout.input_scales),
        cache=LatentCache(latent.kv_rank, latent.rope),
        excluded="the MTP layer",
        source="SGLang 0.5.23 models/deepseek_v2.py",
    )
