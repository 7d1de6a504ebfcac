"""KV bytes per token row, for the target and for a draft. Source: SGLang 0.5.23 `pool_configurator.py`,
`draft_kv_budget.py`, `kv_cache_dtype.py`.
"""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry import Geometry
from perilune.plan.model.geometry.cache import HeadCache, LatentCache
from perilune.plan.resolve.state import Resolved

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}  # every other format takes at most a byte
FOUR_BIT = frozenset({"nvfp4", "fp4_mx_block16"})
BLOCK_DRAFTS = frozenset({"DSPARK", "DFLASH"})
LAYER_DRAFTS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP", "STANDALONE"})
FOUR_BIT_BLOCK, MXFP8_BLOCK = 16, 32
SHARD_PREFIX_CONTEXTS = 8  # full contexts that the scratch of --enable-kv-cache-sharding holds


def kv_format(resolved: Resolved) -> str:
    """The format of the target's KV: what was written, `auto` an FP8 scheme of the checkpoint, else the model's dtype.

    The engine does not look at the KV scheme of a compressed-tensors checkpoint.
    """
    name, model = resolved["kv_cache_dtype"], resolved.model
    if name == "auto" and model.kv_cache_quant == "fp8" and model.quant_method != "compressed-tensors":
        return "fp8_e4m3"
    return _format(name, resolved)


def _format(name: str, resolved: Resolved) -> str:
    if name == "auto":
        return resolved.engine_model.dtype if resolved.engine_model else "bfloat16"
    return "bfloat16" if name == "bf16" else name


def element_bytes(resolved: Resolved) -> int:
    """Bytes per KV element of the target."""
    return ELEMENT_BYTES.get(kv_format(resolved), 1)


def target_cells(resolved: Resolved, geometry: Geometry, layers: tuple[int, ...], attn_tp: int) -> tuple[int, ...]:
    """Bytes one token row takes in the target's pool, for each PP stage's count of layers with KV."""
    row = _layer_bytes(resolved, geometry, attn_tp)
    return tuple(n * row for n in layers)


def _layer_bytes(resolved: Resolved, geometry: Geometry, attn_tp: int) -> int:
    dcp: int = max(resolved["dcp_size"], 1)
    name, cache = resolved["kv_cache_dtype"], geometry.cache
    if cache is None:
        return 0
    size = element_bytes(resolved)
    width: int
    if isinstance(cache, LatentCache):
        width = cache.latent + cache.rope
        if name in FOUR_BIT:
            return width // 2 + width // FOUR_BIT_BLOCK
        return width * size + cache.index_bytes * dcp
    heads, width = cache.heads(max(1, attn_tp // dcp)), cache.head_dim + cache.value_dim
    if name in FOUR_BIT:
        return heads * (width // 2 + width // FOUR_BIT_BLOCK)
    scales = heads * width // MXFP8_BLOCK if name == "mxfp8" else 0
    return heads * width * size + scales


def draft_cells(resolved: Resolved, own: tuple[int, ...], layers: tuple[int, ...], attn_tp: int) -> tuple[int, ...]:
    """Bytes one row takes in the draft's own pool on each stage; 0 where there is no draft KV.

    A block draft (DSPARK, DFLASH) is sized from its own heads; an EAGLE-like one as so many target layers.
    """
    algorithm = resolved["speculative_algorithm"]
    if algorithm in BLOCK_DRAFTS and resolved.draft is not None:
        cell = _block_draft_cell(resolved, resolved.draft, attn_tp)
        return tuple(cell if n else 0 for n in layers)
    if algorithm in LAYER_DRAFTS:
        count = _draft_layers(resolved)
        return tuple(int(cell * count / n) if n else 0 for cell, n in zip(own, layers, strict=True))
    return tuple(0 for _ in layers)


def _block_draft_cell(resolved: Resolved, draft: ModelConfig, attn_tp: int) -> int:
    v = resolved.values
    width = v["tp_size"] if v["attn_cp_size"] > 1 and v["attn_dp_size"] == 1 else attn_tp
    heads = max(1, draft.num_kv_heads // width)
    value_dim = draft.fields.integer("v_head_dim", default=draft.head_dim, high=1 << 16)
    name = v["speculative_draft_kv_cache_dtype"] or v["kv_cache_dtype"]
    auto = v["speculative_draft_attention_backend"] == "fa4"
    size = ELEMENT_BYTES.get(_format("auto" if auto else name, resolved), 1)
    return heads * (draft.head_dim + value_dim) * draft.num_layers * size


def draft_rows(resolved: Resolved) -> int:
    """Rows of the draft's pool that one row of the budget pays for: DCP for a block draft, else 1."""
    return max(resolved["dcp_size"], 1) if resolved["speculative_algorithm"] in BLOCK_DRAFTS else 1


def _draft_layers(resolved: Resolved) -> int:
    source = resolved.draft or resolved.model
    nextn = source.text.get("num_nextn_predict_layers")
    if isinstance(nextn, int) and not isinstance(nextn, bool):
        return max(nextn, 0)
    return resolved.draft.num_layers if resolved.draft is not None else 0


def shard_scratch_bytes(resolved: Resolved, geometry: Geometry, attn_tp: int) -> int:
    """Bytes of the double-buffered scratch that --enable-kv-cache-sharding takes from the KV budget."""
    v = resolved.values
    if not v["enable_kv_cache_sharding"]:
        return 0
    ranks: int = v["attn_cp_size"] if v["attn_cp_size"] > 1 else attn_tp
    if ranks <= 1 or (isinstance(geometry.cache, HeadCache) and v["attn_cp_size"] <= 1):
        return 0
    page: int = v["page_size"]
    context = resolved.engine_model.context_length if resolved.engine_model else resolved.model.context_length
    span = ranks * page
    prefix: int = SHARD_PREFIX_CONTEXTS * (-(-context // span) * span)
    rows: int = prefix + -(-v["chunked_prefill_size"] // page) * page + page
    scratch = 2 * rows * _layer_bytes(resolved, geometry, attn_tp)
    return scratch * 2 if v["speculative_algorithm"] == "EAGLE" else scratch
