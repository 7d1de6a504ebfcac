"""Kimi-K3: KDA and gated MLA layers, latent mixture of experts, attention residuals, a MoonViT tower.

Sources: the checkpoint's own index (parameter inventory, exact), SGLang 0.5.23 models/kimi_k3.py and kimi_k3_vl.py
(what is split, kept whole, and converted).
"""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import (
    MAX_DIM,
    SHARED,
    Kda,
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
from perilune.plan.model.geometry.layout import Layout, layout_of
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.geometry.storage import BF16, F32
from perilune.plan.model.geometry.tensors import ATTN_COLS, ATTN_ROWS, EVERY, LAST, WHOLE, Owner, Tensors, Units

ARCHITECTURES = ("KimiK3ForConditionalGeneration", "KimiK3LinearForCausalLM")
A_LOG_STORED = 128  # the checkpoint pads A_log to the head dimension
SPLIT = (ATTN_ROWS, ATTN_COLS)


def build(config: ModelConfig) -> Geometry:
    """The geometry of a Kimi-K3 checkpoint; raises UnusableInput naming a field that cannot be used."""
    f, layout, hidden = config.fields, layout_of(config), config.hidden_size
    linear, full = Owner(config.linear_layers), Owner(config.full_layers)
    every = Owner(tuple(range(config.num_layers)))
    dense, moe = moe_layers(config)
    sizes = kda_sizes(f)
    latent = Mla.read(f, config.num_heads)
    tensors = [
        *token_tables(config, layout.head),
        *layer_norms(config, every),
        *kda(sizes, hidden, linear, layout.linear, split=SPLIT),
        *_k3_kda(sizes, hidden, linear, layout),
        *mla(latent, hidden, full, layout.attention, gate=f.flag("mla_use_output_gate")),
        *gated_mlp(hidden, f.integer("intermediate_size", high=MAX_DIM), Owner(dense), layout.dense),
        *_attention_residual(f, hidden, every),
        *_vision(config),
    ]
    experts = None
    if moe:
        tensors += _moe_extras(config, Owner(moe), layout)
        experts = Experts(
            layers=moe,
            count=config.num_experts,
            hidden=f.integer("routed_expert_hidden_size", high=MAX_DIM, default=hidden),
            intermediate=f.integer("moe_intermediate_size", high=MAX_DIM),
            gated=True,
            stored=layout.experts,
            input_scales=layout.input_scales,
        )
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=config.linear_layers,
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=(Units(sizes.heads, "attention TP", "KDA heads"), Units(latent.heads, "attention TP", "MLA heads")),
        experts=experts,
        state=StateShape("kda", sizes.heads, sizes.dim, sizes.heads, sizes.dim, sizes.kernel),
        cache=LatentCache(latent.kv_rank, latent.rope),
        source="checkpoint index of moonshotai/Kimi-K3; SGLang 0.5.23 models/kimi_k3.py",
    )


def kda_sizes(f: Fields) -> Kda:
    """Heads, head dimension and convolution kernel of `linear_attn_config`."""
    section = f.section("linear_attn_config")
    return Kda(
        heads=section.integer("num_heads", high=1 << 16),
        dim=section.integer("head_dim", high=1 << 16),
        kernel=section.integer("short_conv_kernel_size", low=2, high=64),
    )


def moe_layers(config: ModelConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(dense layers, MoE layers), 0-based."""
    f = config.fields
    layers = range(config.num_layers)
    if not config.is_moe:
        return tuple(layers), ()
    first = f.integer("first_k_dense_replace", low=0, high=config.num_layers, default=0)
    every = f.integer("moe_layer_freq", high=config.num_layers, default=1)
    moe = tuple(i for i in layers if i >= first and i % every == 0)
    return tuple(i for i in layers if i not in set(moe)), moe


def _k3_kda(k: Kda, hidden: int, owner: Owner, layout: Layout) -> list[Tensors]:
    """The full-rank gate, A_log, and the BF16 copies the engine makes of quantized f_a, f_b and beta."""
    group, stored = "KDA attention", layout.linear
    found = [
        Tensors("g_proj", group, k.width, hidden, owner, ATTN_ROWS, stored, stored),
        Tensors("A_log, padded", group, max(k.heads, A_LOG_STORED), 1, owner, WHOLE, F32, None),
        Tensors("A_log", group, k.heads, 1, owner, ATTN_ROWS, None, F32),
    ]
    if stored is not BF16:
        copies = "BF16 copies of f_a, f_b and beta"
        found += [
            Tensors("f_a copy", copies, k.dim, hidden, owner, WHOLE, None),
            Tensors("beta copy", copies, k.heads, hidden, owner, ATTN_ROWS, None),
            Tensors("f_b copy", copies, k.width, k.dim, owner, ATTN_ROWS, None),
        ]
    return found


def _moe_extras(config: ModelConfig, owner: Owner, layout: Layout) -> list[Tensors]:
    f, hidden = config.fields, config.hidden_size
    found = router(config.num_experts, hidden, owner)
    shared = f.integer("num_shared_experts", low=0, high=1024, default=0)
    if shared:
        inner = shared * f.integer("moe_intermediate_size", high=MAX_DIM)
        found += gated_mlp(hidden, inner, owner, layout.shared, SHARED)
    if f.has("routed_expert_hidden_size"):
        latent, group = f.integer("routed_expert_hidden_size", high=MAX_DIM), "latent projections"
        found += [
            Tensors("routed_expert_down_proj", group, latent, hidden, owner, WHOLE, layout.latent, layout.latent),
            Tensors("routed_expert_up_proj", group, hidden, latent, owner, WHOLE, layout.latent, layout.latent),
        ]
        if f.flag("latent_moe_use_norm"):
            found.append(Tensors("routed_expert_norm", group, latent, 1, owner))
    return found


def _attention_residual(f: Fields, hidden: int, every: Owner) -> list[Tensors]:
    """Two norms and two score rows per layer and one pair at the output; the engine keeps their product twice."""
    if not f.has("attn_res_block_size"):
        return []
    group = "attention residual"
    return [
        Tensors("residual norms and rows", group, hidden, 1, every, count=4),
        Tensors("output norm and row", group, hidden, 1, LAST, count=2),
        Tensors("score rows, BF16", group, hidden, 1, every, stored=None, count=2),
        Tensors("score rows, F32", group, hidden, 1, every, stored=None, resident=F32, count=2),
        Tensors("output score row, BF16", group, hidden, 1, LAST, stored=None),
        Tensors("output score row, F32", group, hidden, 1, LAST, stored=None, resident=F32),
    ]


def _vision(config: ModelConfig) -> list[Tensors]:
    """The MoonViT tower and its projector: whole on every GPU of every stage."""
    if config.vision is None:
        return []
    v = Fields(config.vision, f"{config.path} config vision_config")
    blocks = v.integer("vt_num_hidden_layers", high=10_000)
    width, inner = v.integer("vt_hidden_size", high=MAX_DIM), v.integer("vt_intermediate_size", high=MAX_DIM)
    heads_width = v.integer("qkv_hidden_size", high=MAX_DIM, default=width)
    patch = v.integer("patch_size", high=1024)
    grid = v.integer("init_pos_emb_height", high=4096) * v.integer("init_pos_emb_width", high=4096)
    frames = v.integer("init_pos_emb_time", high=4096, default=4)
    merge = 1
    for side in v.integers("merge_kernel_size", low=1, high=64):
        merge *= side
    merged = merge * v.integer("mm_hidden_size", high=MAX_DIM, default=width)

    def whole(name: str, rows: int, cols: int, count: int = 1) -> Tensors:
        return Tensors(name, "vision", rows, cols, EVERY, count=count)

    return [
        whole("patch projection", width, 3 * patch * patch),
        whole("position table", grid, width),
        whole("wqkv", 3 * heads_width, width, blocks),
        whole("wo", width, heads_width, blocks),
        whole("fc0", inner, width, blocks),
        whole("fc1", width, inner, blocks),
        whole("norms", width, 1, 2 * blocks + 1),
        whole("projector in", merged, merged),
        whole("projector out", config.hidden_size, merged),
        whole("projector norm", config.hidden_size, 1),
        Tensors("time table", "vision", frames, width, EVERY, stored=None, resident=F32),
    ]
