"""GLM-5.3-Flash: KDA layers, latent attention with a pooled key indexer, hyper-connections, a vision tower.

Sources: SGLang 0.5.23 models/glm5_next.py and layers/attention/dsa/dsa_indexer_kpool.py; transformers 5.24.0 glm5_next
for the parameter count.
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
from perilune.plan.model.geometry.kimi_k3 import moe_layers
from perilune.plan.model.geometry.layout import layout_of
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.geometry.storage import F32, Storage
from perilune.plan.model.geometry.tensors import ATTN_COLS, ATTN_ROWS, EVERY, WHOLE, Owner, Split, Tensors, Units

ARCHITECTURES = ("Glm5NextForConditionalGeneration",)
DENSE_OR_WHOLE = ("dense TP or whole", "dense MLP")
ROTARY_POSITIONS = 8192
ROWS, COLS = Split("rows", "encoder TP"), Split("cols", "encoder TP")


def build(config: ModelConfig) -> Geometry:
    """The geometry of a GLM-5.3-Flash checkpoint; raises UnusableInput naming a field that cannot be used."""
    f, layout, hidden = config.fields, layout_of(config), config.hidden_size
    every = Owner(tuple(range(config.num_layers)))
    linear, full = Owner(config.linear_layers), Owner(config.full_layers)
    dense, moe = moe_layers(config)
    sizes = Kda(
        heads=f.integer("linear_num_heads", high=1 << 16),
        dim=f.integer("linear_head_dim", high=1 << 16),
        kernel=f.integer("linear_conv_kernel_dim", low=2, high=64),
    )
    latent = Mla.read(f, config.num_heads)
    inner = f.integer("moe_intermediate_size", high=MAX_DIM)
    shared = f.integer("n_shared_experts", low=0, high=1024, default=0)
    tensors = [
        *token_tables(config, layout.head),
        *layer_norms(config, every),
        *kda(sizes, hidden, linear, layout.linear, split=(ATTN_ROWS, ATTN_COLS)),
        *_low_rank_gate(sizes, hidden, linear, layout.linear),
        *mla(latent, hidden, full, layout.attention),
        *_indexer(f, latent, hidden, full, layout.attention),
        *_hyper_connections(f, hidden, every),
        *gated_mlp(hidden, f.integer("intermediate_size", high=MAX_DIM), Owner(dense), layout.dense, DENSE_OR_WHOLE),
        *router(config.num_experts, hidden, Owner(moe)),
        *_vision(config),
    ]
    if shared:
        tensors += gated_mlp(hidden, shared * inner, Owner(moe), layout.shared, SHARED)
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=config.linear_layers,
        full_layers=config.full_layers,
        tensors=tuple(tensors),
        units=(Units(sizes.heads, "attention TP", "KDA heads"), Units(latent.heads, "attention TP", "MLA heads")),
        experts=Experts(moe, config.num_experts, hidden, inner, True, layout.experts, layout.input_scales),
        state=StateShape("kda", sizes.heads, sizes.dim, sizes.heads, sizes.dim, sizes.kernel),
        cache=LatentCache(
            latent.kv_rank,
            latent.rope,
            f.integer("index_head_dim", low=0, high=1 << 16, default=0),
            f.integer("index_kpool", high=1 << 16, default=1),
        ),
        excluded="the MTP layer",
        source="SGLang 0.5.23 models/glm5_next.py; transformers 5.24.0 glm5_next",
    )


def _low_rank_gate(k: Kda, hidden: int, owner: Owner, stored: Storage) -> list[Tensors]:
    group = "KDA attention"
    return [
        Tensors("g_a_proj", group, k.dim, hidden, owner, WHOLE, stored, stored),
        Tensors("g_b_proj", group, k.width, k.dim, owner, ATTN_ROWS, stored, stored),
        Tensors("A_log", group, k.heads, 1, owner, ATTN_ROWS, F32, F32),
    ]


def _indexer(f: Fields, m: Mla, hidden: int, owner: Owner, stored: Storage) -> list[Tensors]:
    """Chooses which tokens a query attends to; whole on every GPU, its head weights kept in F32."""
    if not f.has("index_topk"):
        return []
    group = "indexer"
    heads = f.integer("index_n_heads", high=1 << 16)
    dim = f.integer("index_head_dim", high=1 << 16)
    pool = f.integer("index_kpool", high=1 << 16, default=1)
    return [
        Tensors("wq_b", group, heads * dim, m.q_rank, owner, WHOLE, stored, stored),
        Tensors("wk", group, dim, hidden, owner, WHOLE, stored, stored),
        Tensors("weights_proj", group, heads, hidden, owner, resident=F32),
        Tensors("k_norm", group, dim, 1, owner, resident=F32, count=2),
        Tensors("pool gate", group, dim, hidden, owner),
        Tensors("pool positions", group, pool, dim, owner, resident=F32),
    ]


def _hyper_connections(f: Fields, hidden: int, every: Owner) -> list[Tensors]:
    if not f.flag("mhc"):
        return []
    streams = f.integer("hc_mult", high=1024)
    mixed = (2 + streams) * streams
    group = "hyper-connections"
    return [
        Tensors("fn", group, mixed, streams * hidden, every, resident=F32, count=2),
        Tensors("base", group, mixed, 1, every, resident=F32, count=2),
        Tensors("scale", group, 3, 1, every, resident=F32, count=2),
    ]


def _vision(config: ModelConfig) -> list[Tensors]:
    if config.vision is None:
        return []
    v = Fields(config.vision, f"{config.path} config vision_config")
    width, inner = v.integer("hidden_size", high=MAX_DIM), v.integer("intermediate_size", high=MAX_DIM)
    blocks = v.integer("depth", high=10_000)
    head = width // v.integer("num_heads", high=width)
    out, context = (
        v.integer("out_hidden_size", high=MAX_DIM),
        v.integer("projection_intermediate_size", high=MAX_DIM),
    )
    merge = v.integer("spatial_merge_size", high=64)
    patch = v.integer("in_channels", high=64, default=3) * v.integer("temporal_patch_size", high=64, default=2)
    patch *= v.integer("patch_size", high=1024) ** 2
    biased = v.flag("attention_bias", default=True)

    def part(name: str, rows: int, cols: int, split: Split = WHOLE, count: int = 1) -> Tensors:
        return Tensors(name, "vision", rows, cols, EVERY, split, count=count)

    found = [
        part("patch projection", width, patch),
        part("patch bias", width, 1),
        part("qkv", 3 * width, width, ROWS, blocks),
        part("proj", width, width, COLS, blocks),
        part("q and k norm", head, 1, WHOLE, 2 * blocks),
        part("gate and up", inner, width, ROWS, 2 * blocks),
        part("down", width, inner, COLS, blocks),
        part("norms", width, 1, WHOLE, 2 * blocks + 1),
        part("downsample", out, width * merge * merge),
        part("downsample bias", out, 1),
    ]
    if biased:
        found += [
            part("qkv bias", 3 * width, 1, ROWS, blocks),
            part("proj bias", width, 1, WHOLE, blocks),
            part("gate and up bias", inner, 1, ROWS, 2 * blocks),
            part("down bias", width, 1, WHOLE, blocks),
        ]
    return [
        *found,
        part("merger projection", out, out),
        Tensors("merger norm", "vision", out, 1, EVERY, resident=F32, count=2),
        Tensors("vision rotary table", "vision", ROTARY_POSITIONS, head // 2, EVERY, stored=None, resident=F32),
        part("merger gate and up", context, out, ROWS, 2),
        part("merger down", out, context, COLS),
    ]
