"""What one GPU of a pipeline stage reads and computes in a step, counted from the geometry's own tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perilune.plan.memory.weights import shape_of
from perilune.plan.model import Geometry, ParallelShape, geometry_of, resident_weights, stage_layers
from perilune.plan.model.geometry.blocks import QUERY_PROJECTIONS, W_KC, Mla
from perilune.plan.model.geometry.cache import LatentCache
from perilune.plan.model.geometry.resident import Held
from perilune.plan.resolve.state import Resolved
from perilune.rehearse.timing.experts import Routed, dense_rate, routed_of
from perilune.rehearse.timing.roofline import Product

UNREAD = frozenset({"embedding", "vision", "rotary table", "Markov tables"})
"""Groups of which a step touches a few rows at most."""

ATTENTION = frozenset(
    {
        "KDA attention",
        "MLA attention",
        "absorbed MLA copies",
        "attention",
        "gated delta net",
        "Mamba2",
        "indexer",
        "BF16 copies of f_a, f_b and beta",
    }
)
"""Groups that run on the tokens of one attention-DP rank; the others run on all tokens of the TP group."""

PER_LAYER_WIDE = frozenset({"norms", "attention residual", "hyper-connections"})
KDA_CHUNK = 64  # tokens a prefill kernel of the delta rule takes at once
STREAM_PASSES = 10  # times a layer reads or writes the residual stream in prefill: norms, adds, inputs and outputs
HEAD_PASSES = 10  # times a recurrent layer reads or writes rows as wide as its heads


@dataclass(frozen=True, slots=True)
class Shares:
    """Products by the rows they run on."""

    local: tuple[Product, ...]  # tokens of one attention-DP rank
    total: tuple[Product, ...]  # tokens of the whole TP group
    shard: tuple[Product, ...]  # a rank's own share of its attention-DP rank's tokens
    last: tuple[Product, ...]  # the head: one row a request in prefill, every row in decode


@dataclass(frozen=True, slots=True)
class StageWork:
    """One pipeline stage of the target on one GPU."""

    layers: int
    linear: int  # recurrent layers
    full: int  # layers with KV
    moe: int
    decode: Shares
    prefill: Shares
    routed: Routed | None
    pair_macs: int  # multiply-adds per (query, key) pair of prefill attention, over the stage's layers
    scan_macs: int  # multiply-adds per token of the recurrent layers in prefill
    token_bytes: int  # activations that one prefill token moves, experts aside
    query_macs: int  # multiply-adds per query and KV token that this GPU holds, in decode


def stage_work(resolved: Resolved, geometry: Geometry) -> tuple[StageWork, ...]:
    """The work of every stage."""
    shape = shape_of(resolved)
    return tuple(_stage(resolved, geometry, shape, n) for n in range(shape.pp))


def _stage(resolved: Resolved, geometry: Geometry, shape: ParallelShape, stage: int) -> StageWork:
    start, end = stage_layers(geometry.num_layers, shape.pp, shape.partition)[stage]
    linear = sum(start <= n < end for n in geometry.linear_layers)
    full = sum(start <= n < end for n in geometry.full_layers)
    routed = routed_of(resolved, geometry, shape, start, end)
    held = [part for group in resident_weights(geometry, shape, stage) for part in group.parts]
    hidden = geometry.config.hidden_size
    gathered = shape.dcp if resolved["dcp_replicate_q_proj"] else 1
    return StageWork(
        layers=end - start,
        linear=linear,
        full=full,
        moe=routed.layers if routed else 0,
        decode=_shares(held, shape, {"kv_b_proj"}, gathered),
        prefill=_shares(held, shape, {W_KC, "w_vc"}, 1),
        routed=routed,
        pair_macs=full * _pair_macs(geometry, shape),
        scan_macs=linear * _scan_macs(geometry, shape),
        token_bytes=(end - start) * 2 * hidden * (STREAM_PASSES + _bank_rows(geometry, start, end))
        + linear * _head_bytes(geometry, shape),
        query_macs=full * _query_macs(geometry, shape),
    )


def _shares(held: Iterable[Held], shape: ParallelShape, skip: set[str], gathered: int) -> Shares:
    """Sort what a GPU holds by the rows it runs on; query weights are there `gathered` times."""
    local: list[Product] = []
    total: list[Product] = []
    shard: list[Product] = []
    last: list[Product] = []
    for part in held:
        group, name = part.tensors.group, part.tensors.name
        if group in UNREAD or name in skip:
            continue
        product = _product(part, gathered if name in (*QUERY_PROJECTIONS, W_KC) else 1)
        if group == "lm_head":
            last.append(product)
        elif group in ATTENTION or group in PER_LAYER_WIDE:
            local.append(product)
        elif group == "dense MLP":
            (local if shape.dense_mlp_attn_tp else total).append(product)
        else:
            (shard if shape.expert_a2a else total).append(product)
    return Shares(tuple(local), tuple(total), tuple(shard), tuple(last))


def _product(part: Held, times: int = 1) -> Product:
    macs = part.rows * part.cols * part.tensors.count * part.units if part.cols > 1 else 0
    return Product(part.bytes * times, macs * times, dense_rate(part.storage))


def _pair_macs(geometry: Geometry, shape: ParallelShape) -> int:
    """Of one layer, per pair: the score and the value, on this GPU's heads (prefill expands the latent)."""
    config, cache = geometry.config, geometry.cache
    if cache is None:
        return 0
    heads = max(1, config.num_heads // shape.attn_tp)
    if isinstance(cache, LatentCache):
        m = Mla.read(config.fields, config.num_heads)
        return heads * (m.nope + m.rope + m.value)
    return heads * (cache.head_dim + cache.value_dim)


def _query_macs(geometry: Geometry, shape: ParallelShape) -> int:
    """Of one layer in decode, per query and stored row: MLA runs in the latent, DCP on the heads of its group."""
    config, cache = geometry.config, geometry.cache
    if cache is None:
        return 0
    heads = max(1, config.num_heads // shape.attn_tp) * shape.dcp
    if isinstance(cache, LatentCache):
        return heads * (2 * cache.latent + cache.rope)
    return heads * (cache.head_dim + cache.value_dim)


def _scan_macs(geometry: Geometry, shape: ParallelShape) -> int:
    """Of one recurrent layer, per token: three products with the state, and those inside a chunk of the scan."""
    state = geometry.state
    if state is None:
        return 0
    inside = 2 * KDA_CHUNK * (state.key_dim + state.value_dim)
    return state.value_heads // shape.attn_tp * (3 * state.key_dim * state.value_dim + inside)


def _head_bytes(geometry: Geometry, shape: ParallelShape) -> int:
    state = geometry.state
    return 0 if state is None else 2 * HEAD_PASSES * state.channels(shape.attn_tp) // 3


def _bank_rows(geometry: Geometry, start: int, end: int) -> int:
    """Rows of the attention-residual bank that a layer's two reads take, on average over the stage."""
    f = geometry.config.fields
    if not f.has("attn_res_block_size"):
        return 0
    block = f.integer("attn_res_block_size", high=1 << 16)
    return 2 * sum(1 + n // block for n in range(start, end)) // (end - start)


@dataclass(frozen=True, slots=True)
class DraftWork:
    """A block draft (DSPARK, DFLASH): it takes features of every verified token and proposes a block."""

    layers: int
    block: int
    features: tuple[Product, ...]  # on every token that the target has run: features, keys and values
    proposing: tuple[Product, ...]  # on the block's tokens


def draft_work(resolved: Resolved, geometry: Geometry) -> DraftWork | None:
    """The draft's work; None without a draft model."""
    draft, algorithm = resolved.draft, resolved["speculative_algorithm"]
    if draft is None or algorithm is None:
        return None
    shape = shape_of(resolved)
    width = shape.attn_tp if shape.attn_dp > 1 else shape.tp
    own = ParallelShape(tp=width, moe_runner=shape.moe_runner, kind=shape.kind, sm=shape.sm)
    groups = resident_weights(geometry_of(draft), own, 0)
    head = [g for g in resident_weights(geometry, shape, shape.pp - 1) if g.name == "lm_head"]
    products = [(g.name, _product(part)) for g in (*groups, *head) if g.name not in UNREAD for part in g.parts]
    return DraftWork(
        layers=draft.num_layers,
        block=verify_width(resolved) - 1,
        features=tuple(p for name, p in products if name == "target features"),
        proposing=tuple(p for name, p in products if name != "target features"),
    )


def verify_width(resolved: Resolved) -> int:
    """Tokens of one request that a decode step runs: the draft's block and one more, 1 without speculation."""
    if resolved["speculative_algorithm"] is None:
        return 1
    return int(resolved["speculative_num_draft_tokens"] or 1)
