"""Qwen3.5: the text model of Qwen3-Next, dense or with experts, beside a vision tower.

Source: SGLang 0.5.23 models/qwen3_5.py and qwen3_vl.py.
"""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import MAX_DIM
from perilune.plan.model.geometry.cache import HeadCache
from perilune.plan.model.geometry.gdn import text_model
from perilune.plan.model.geometry.layout import layout_of
from perilune.plan.model.geometry.storage import F32
from perilune.plan.model.geometry.tensors import EMBEDDING_WHOLE_UNDER_DP, EVERY, FIRST, WHOLE, Split, Tensors

ARCHITECTURES = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
ROWS, COLS = Split("rows", "encoder TP"), Split("cols", "encoder TP")
ROTARY_POSITIONS = 8192


def build(config: ModelConfig) -> Geometry:
    """The geometry of a Qwen3.5 checkpoint; raises UnusableInput naming a field that cannot be used."""
    tensors, experts, sizes = text_model(config, layout_of(config), EMBEDDING_WHOLE_UNDER_DP)
    return Geometry(
        config=config,
        num_layers=config.num_layers,
        linear_layers=config.linear_layers,
        full_layers=config.full_layers,
        tensors=(*tensors, *_vision(config)),
        units=sizes.units(config),
        experts=experts,
        state=sizes.state,
        cache=HeadCache(config.num_kv_heads, config.head_dim, config.head_dim),
        excluded="the MTP layer",
        source="SGLang 0.5.23 models/qwen3_5.py",
    )


def _vision(config: ModelConfig) -> list[Tensors]:
    if config.vision is None:
        return []
    v = Fields(config.vision, f"{config.path} config vision_config")
    width, inner = v.integer("hidden_size", high=MAX_DIM), v.integer("intermediate_size", high=MAX_DIM)
    blocks = v.integer("depth", high=10_000)
    heads = v.integer("num_heads", high=1 << 16)
    merged = width * v.integer("spatial_merge_size", high=64) ** 2
    out = v.integer("out_hidden_size", high=MAX_DIM)
    patch = v.integer("in_channels", high=64, default=3) * v.integer("temporal_patch_size", high=64, default=2)
    patch *= v.integer("patch_size", high=1024) ** 2

    def part(name: str, rows: int, cols: int, split: Split = WHOLE, count: int = 1) -> Tensors:
        return Tensors(name, "vision", rows, cols, EVERY, split, count=count)

    return [
        part("patch projection", width, patch),
        part("patch bias", width, 1),
        Tensors("position table", "vision", v.integer("num_position_embeddings", high=1 << 20), width, FIRST, ROWS),
        part("norm weights and biases", width, 1, WHOLE, 4 * blocks),
        part("qkv", 3 * width, width, ROWS, blocks),
        part("qkv bias", 3 * width, 1, ROWS, blocks),
        part("proj", width, width, COLS, blocks),
        part("proj bias", width, 1, WHOLE, blocks),
        part("fc1", inner, width, ROWS, blocks),
        part("fc1 bias", inner, 1, ROWS, blocks),
        part("fc2", width, inner, COLS, blocks),
        part("fc2 bias", width, 1, WHOLE, blocks),
        part("merger norm", width, 1, WHOLE, 2),
        part("merger fc1", merged, merged, ROWS),
        part("merger fc1 bias", merged, 1, ROWS),
        part("merger fc2", out, merged, COLS),
        part("merger fc2 bias", out, 1),
        Tensors(
            "vision rotary table",
            "vision",
            ROTARY_POSITIONS,
            width // heads // 2,
            EVERY,
            stored=None,
            resident=F32,
        ),
    ]
