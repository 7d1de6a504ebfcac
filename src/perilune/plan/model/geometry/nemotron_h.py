"""Nemotron-H and Nemotron-3: Mamba2, attention, and MLP or expert layers in a written order.

Source: SGLang 0.5.23 models/nemotron_h.py and layers/attention/mamba/mamba.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import (
    MAX_DIM,
    SHARED_TP,
    gated_mlp,
    grouped_query,
    layer_norms,
    router,
    token_tables,
)
from perilune.plan.model.geometry.cache import HeadCache
from perilune.plan.model.geometry.experts import Experts
from perilune.plan.model.geometry.layout import Layout, layout_of
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.geometry.storage import F32, Storage
from perilune.plan.model.geometry.tensors import ATTN_COLS, ATTN_ROWS, Owner, Split, Tensors, Units

ARCHITECTURES = ("NemotronHForCausalLM",)


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Sizes of a Mamba2 layer."""

    heads: int
    dim: int
    groups: int
    state: int
    kernel: int

    @classmethod
    def read(cls, f: Fields) -> Mamba2:
        """Read the sizes; raises UnusableInput naming a missing or absurd one."""
        return cls(
            heads=f.integer("mamba_num_heads", high=1 << 16),
            dim=f.integer("mamba_head_dim", high=1 << 16),
            groups=f.integer("n_groups", high=1 << 16),
            state=f.integer("ssm_state_size", high=1 << 16),
            kernel=f.integer("conv_kernel", low=2, high=64),
        )

    def units(self, config: ModelConfig) -> tuple[Units, ...]:
        """Heads and groups that no split may cut; a single group is kept whole on every GPU instead."""
        over = "attention TP"
        heads = Units(self.heads, over, "Mamba2 heads"), Units(config.num_heads, over, "attention heads")
        return heads if self.groups == 1 else (*heads, Units(self.groups, over, "Mamba2 groups"))


def build(config: ModelConfig) -> Geometry:
    """The geometry of a Nemotron-H checkpoint; raises UnusableInput naming a field that cannot be used."""
    f, layout = config.fields, layout_of(config)
    sizes = Mamba2.read(f)
    blocks = config.layers.blocks
    dense = tuple(i for i, block in enumerate(blocks) if block == "mlp")
    moe = tuple(i for i, block in enumerate(blocks) if block == "moe")
    tensors = [
        *token_tables(config, layout.head),
        *layer_norms(config, Owner(tuple(range(config.num_layers))), 1),
        *_mamba(sizes, config.hidden_size, Owner(config.linear_layers), layout.linear, f),
        *grouped_query(config, Owner(config.full_layers), layout.attention),
    ]
    if dense:
        inner = f.integer("intermediate_size", high=MAX_DIM)
        kind = ("TP", "dense MLP")
        tensors += gated_mlp(config.hidden_size, inner, Owner(dense), layout.dense, kind, gated=False)
    experts = None
    if moe:
        extra, experts = _experts(config, moe, layout)
        tensors += extra
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=config.linear_layers,
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=sizes.units(config),
        experts=experts,
        state=StateShape("mamba2", sizes.heads, sizes.dim, sizes.groups, sizes.state, sizes.kernel),
        cache=HeadCache(config.num_kv_heads, config.head_dim, config.head_dim),
        excluded="MTP layers",
        source="SGLang 0.5.23 models/nemotron_h.py",
    )


def _mamba(m: Mamba2, hidden: int, owner: Owner, stored: Storage, f: Fields) -> list[Tensors]:
    """B and C belong to groups; a single group is kept whole on every GPU."""
    group = "Mamba2"
    inner, grouped = m.heads * m.dim, m.groups * m.state
    by_group = Split("rows", "attention TP", heads=1) if m.groups == 1 else ATTN_ROWS
    found = [
        Tensors("in_proj z and x", group, inner, hidden, owner, ATTN_ROWS, stored, stored, count=2),
        Tensors("in_proj B and C", group, grouped, hidden, owner, by_group, stored, stored, count=2),
        Tensors("in_proj dt", group, m.heads, hidden, owner, ATTN_ROWS, stored, stored),
        Tensors("out_proj", group, hidden, inner, owner, ATTN_COLS, stored, stored),
        Tensors("conv1d x", group, inner, m.kernel, owner, ATTN_ROWS),
        Tensors("conv1d B and C", group, grouped, m.kernel, owner, by_group, count=2),
        Tensors("A", group, m.heads, 1, owner, ATTN_ROWS, F32, F32),
        Tensors("D and dt_bias", group, m.heads, 1, owner, ATTN_ROWS, count=2),
        Tensors("norm", group, inner, 1, owner, ATTN_ROWS),
    ]
    if f.flag("use_conv_bias", default=True):
        found.append(Tensors("conv1d x bias", group, inner, 1, owner, ATTN_ROWS))
        found.append(Tensors("conv1d B and C bias", group, grouped, 1, owner, by_group, count=2))
    return found


def _experts(config: ModelConfig, moe: tuple[int, ...], layout: Layout) -> tuple[list[Tensors], Experts]:
    f, hidden, owner = config.fields, config.hidden_size, Owner(moe)
    latent = f.integer("moe_latent_size", low=0, high=MAX_DIM, default=0)
    shared = f.integer("n_shared_experts", low=0, high=1024, default=0)
    tensors = router(config.num_experts, hidden, owner)
    if shared:
        inner = shared * f.integer("moe_shared_expert_intermediate_size", high=MAX_DIM)
        tensors += gated_mlp(hidden, inner, owner, layout.shared, SHARED_TP, gated=False)
    if latent:
        group, stored = "latent projections", layout.latent
        tensors.append(Tensors("fc1_latent_proj", group, latent, hidden, owner, stored=stored, resident=stored))
        tensors.append(Tensors("fc2_latent_proj", group, hidden, latent, owner, stored=stored, resident=stored))
    inner = f.integer("moe_intermediate_size", high=MAX_DIM)
    experts = Experts(moe, config.num_experts, latent or hidden, inner, False, layout.experts, layout.input_scales)
    return tensors, experts
