"""Gated delta net layers and gated attention: the text model of Qwen3-Next and Qwen3.5.

Sources: SGLang 0.5.23 models/qwen3_next.py and qwen3_5.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.model.geometry.blocks import (
    MAX_DIM,
    SHARED_TP,
    gated_mlp,
    grouped_query,
    layer_norms,
    router,
    token_tables,
)
from perilune.plan.model.geometry.experts import Experts
from perilune.plan.model.geometry.layout import Layout
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.geometry.storage import F32, Storage
from perilune.plan.model.geometry.tensors import (
    ATTN_COLS,
    ATTN_ROWS,
    EMBEDDING,
    LAST,
    WHOLE,
    Owner,
    Split,
    Tensors,
    Units,
    rotary_table,
)


@dataclass(frozen=True, slots=True)
class Gdn:
    """Sizes of a gated delta net layer."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int

    @classmethod
    def read(cls, f: Fields) -> Gdn:
        """Read the sizes; raises UnusableInput naming a missing or absurd one."""
        sizes = cls(
            key_heads=f.integer("linear_num_key_heads", high=1 << 16),
            key_dim=f.integer("linear_key_head_dim", high=1 << 16),
            value_heads=f.integer("linear_num_value_heads", high=1 << 16),
            value_dim=f.integer("linear_value_head_dim", high=1 << 16),
            kernel=f.integer("linear_conv_kernel_dim", low=2, high=64),
        )
        if sizes.value_heads % sizes.key_heads:
            raise f.bad("linear_num_key_heads", f"is {sizes.key_heads}, which does not divide the value heads")
        return sizes

    def units(self, config: ModelConfig) -> tuple[Units, ...]:
        """Heads that no split may cut."""
        over = "attention TP"
        heads = Units(config.num_heads, over, "attention heads")
        return Units(self.key_heads, over, "key heads"), Units(self.value_heads, over, "value heads"), heads

    @property
    def state(self) -> StateShape:
        """What one request keeps per layer."""
        return StateShape("gdn", self.value_heads, self.value_dim, self.key_heads, self.key_dim, self.kernel)


def text_model(
    config: ModelConfig, layout: Layout, embedding: Split = EMBEDDING
) -> tuple[list[Tensors], Experts | None, Gdn]:
    """Tensors, routed experts and recurrent sizes of the text model; raises UnusableInput."""
    f, hidden = config.fields, config.hidden_size
    sizes = Gdn.read(f)
    every = Owner(tuple(range(config.num_layers)))
    linear, full = Owner(config.linear_layers), Owner(config.full_layers)
    gated = f.flag("attn_output_gate", default=True)
    dense, moe = _mlp_layers(config)
    tensors = [
        *token_tables(config, layout.head, embedding),
        *layer_norms(config, every),
        *_delta_net(sizes, hidden, linear, layout.linear),
        *grouped_query(config, full, layout.attention, gate=gated, qk_norm=True),
        *_plus_one_norms(config, every, full),
        *_rotary(config),
    ]
    if dense:
        inner = f.integer("intermediate_size", high=MAX_DIM)
        tensors += gated_mlp(hidden, inner, Owner(dense), layout.dense, ("TP", "dense MLP"))
    experts = None
    if moe:
        owner = Owner(moe)
        tensors += router(config.num_experts, hidden, owner, bias=None)
        shared = f.integer("shared_expert_intermediate_size", low=0, high=MAX_DIM, default=0)
        if shared:
            tensors += gated_mlp(hidden, shared, owner, layout.shared, SHARED_TP)
            tensors.append(Tensors("shared_expert_gate", "shared experts", 1, hidden, owner))
        inner = f.integer("moe_intermediate_size", high=MAX_DIM)
        experts = Experts(moe, config.num_experts, hidden, inner, True, layout.experts, layout.input_scales)
    return tensors, experts, sizes


def _mlp_layers(config: ModelConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    f, layers = config.fields, range(config.num_layers)
    if not config.is_moe:
        return tuple(layers), ()
    step = f.integer("decoder_sparse_step", high=config.num_layers, default=1)
    plain = set(f.integers("mlp_only_layers", low=0, high=config.num_layers)) if f.has("mlp_only_layers") else set()
    moe = tuple(i for i in layers if i not in plain and (i + 1) % step == 0)
    return tuple(i for i in layers if i not in set(moe)), moe


def _delta_net(s: Gdn, hidden: int, owner: Owner, stored: Storage) -> list[Tensors]:
    group = "gated delta net"
    keys, values = s.key_heads * s.key_dim, s.value_heads * s.value_dim
    return [
        Tensors("in_proj q and k", group, keys, hidden, owner, ATTN_ROWS, stored, stored, count=2),
        Tensors("in_proj v and z", group, values, hidden, owner, ATTN_ROWS, stored, stored, count=2),
        Tensors("in_proj b and a", group, s.value_heads, hidden, owner, ATTN_ROWS, count=2),
        Tensors("out_proj", group, hidden, values, owner, ATTN_COLS, stored, stored),
        Tensors("conv1d q and k", group, keys, s.kernel, owner, ATTN_ROWS, count=2),
        Tensors("conv1d v", group, values, s.kernel, owner, ATTN_ROWS),
        Tensors("A_log", group, s.value_heads, 1, owner, ATTN_ROWS, resident=F32),
        Tensors("dt_bias", group, s.value_heads, 1, owner, ATTN_ROWS),
        Tensors("norm", group, s.value_dim, 1, owner, WHOLE),
    ]


def _plus_one_norms(config: ModelConfig, every: Owner, full: Owner) -> list[Tensors]:
    """The engine keeps `1 + weight` of every norm beside the weight."""
    group = "norms"
    return [
        Tensors("layer norms plus one", group, config.hidden_size, 1, every, stored=None, count=2),
        Tensors("final norm plus one", group, config.hidden_size, 1, LAST, stored=None),
        Tensors("q and k norm plus one", group, config.head_dim, 1, full, stored=None, count=2),
    ]


def _rotary(config: ModelConfig) -> list[Tensors]:
    rope = config.text.get("rope_parameters")
    section = Fields(rope, f"{config.path} rope_parameters") if isinstance(rope, dict) else config.fields
    width = int(config.head_dim * section.fraction("partial_rotary_factor", default=1.0))
    return [rotary_table(config.context_length, width)] if width and config.full_layers else []
