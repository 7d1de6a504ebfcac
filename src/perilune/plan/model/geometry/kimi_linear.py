"""Kimi-Linear: KDA layers with a low-rank gate, MLA without rotary, a mixture of experts in every later layer.

Source: SGLang 0.5.23 models/kimi_linear.py, which splits KDA over all of TP.
"""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import (
    MAX_DIM,
    SHARED_TP,
    Mla,
    gated_mlp,
    kda,
    layer_norms,
    mla,
    router,
    token_tables,
)
from perilune.plan.model.geometry.cache import LatentCache
from perilune.plan.model.geometry.experts import Experts
from perilune.plan.model.geometry.kimi_k3 import kda_sizes, moe_layers
from perilune.plan.model.geometry.layout import layout_of
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.geometry.storage import BF16, F32
from perilune.plan.model.geometry.tensors import EMBEDDING_TP, TP_COLS, TP_ROWS, WHOLE, Owner, Tensors, Units

ARCHITECTURES = ("KimiLinearForCausalLM",)


def build(config: ModelConfig) -> Geometry:
    """The geometry of a Kimi-Linear checkpoint; raises UnusableInput naming a field that cannot be used."""
    f, layout, hidden = config.fields, layout_of(config), config.hidden_size
    linear, full = Owner(config.linear_layers), Owner(config.full_layers)
    dense, moe = moe_layers(config)
    sizes = kda_sizes(f)
    latent = Mla.read(f, config.num_heads)
    group, stored = "KDA attention", layout.linear
    tensors = [
        *token_tables(config, layout.head, EMBEDDING_TP),
        *layer_norms(config, Owner(tuple(range(config.num_layers)))),
        *kda(sizes, hidden, linear, stored, split=(TP_ROWS, TP_COLS)),
        Tensors("g_a_proj", group, sizes.dim, hidden, linear, WHOLE, stored, stored),
        Tensors("g_b_proj", group, sizes.width, sizes.dim, linear, TP_ROWS, stored, stored),
        Tensors("A_log", group, sizes.heads, 1, linear, TP_ROWS, F32, F32),
        *mla(latent, hidden, full, layout.attention),
        *gated_mlp(hidden, f.integer("intermediate_size", high=MAX_DIM), Owner(dense), layout.dense),
    ]
    experts = None
    if moe:
        inner = f.integer("moe_intermediate_size", high=MAX_DIM)
        shared = f.integer("num_shared_experts", low=0, high=1024, default=0)
        tensors += router(config.num_experts, hidden, Owner(moe), bias=BF16)
        if shared:
            tensors += gated_mlp(hidden, shared * inner, Owner(moe), layout.shared, SHARED_TP)
        experts = Experts(moe, config.num_experts, hidden, inner, True, layout.experts, layout.input_scales)
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=config.linear_layers,
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=(Units(sizes.heads, "TP", "KDA heads"), Units(latent.heads, "attention TP", "MLA heads")),
        experts=experts,
        state=StateShape("kda", sizes.heads, sizes.dim, sizes.heads, sizes.dim, sizes.kernel),
        cache=LatentCache(latent.kv_rank, latent.rope),
        source="SGLang 0.5.23 models/kimi_linear.py",
    )
