"""From a resolved server and its model's geometry to the inputs of sizing and allocation.

Nothing here depends on how much memory is free. What depends only on the model and its parallel shape is
kept, so that thousands of variants of one plan cost little.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from perilune.errors import UnusableInput
from perilune.plan.memory import kv_cells
from perilune.plan.memory.allocated import AllocationInputs, LayerState, Stage, row_tokens
from perilune.plan.memory.pools import PoolInputs, slots_per_request
from perilune.plan.model.geometry import Geometry, Indivisible, stage_layers
from perilune.plan.model.geometry.state import StateShape
from perilune.plan.model.traits import is_hybrid_swa
from perilune.plan.resolve.speculation.adaptive import CANDIDATE_STEPS
from perilune.plan.resolve.state import Rejected, Resolved

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
GPU_FEATURE_TRANSPORTS = frozenset({"cuda_ipc", "cuda_vmm"})
REPLAYED_KINDS = frozenset({"kda", "gdn"})
MIB_PER_GIB = 1024


class Layout(msgspec.Struct, frozen=True):
    """Which layers each PP stage holds: its [start, end), its recurrent layers, its layers with KV."""

    spans: tuple[tuple[int, int], ...]
    linear: tuple[int, ...]
    full: tuple[int, ...]


class StateBytes(msgspec.Struct, frozen=True):
    """Recurrent state on one rank, over all layers of the model and for one layer."""

    slot: int
    ring: int
    layer: LayerState
    ssm_bytes: int  # per element of the recurrent state
    conv_bytes: int  # per element of the conv window


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Everything sizing and allocation need from a server, but the memory that is free."""

    attn_tp: int
    layout: Layout
    state: StateBytes | None
    kv_bytes: int  # bytes per KV element of the target
    pool: PoolInputs
    allocation: AllocationInputs
    stages: tuple[Stage, ...]
    late_bytes: int  # allocated after the pools and in no budget: the symmetric-memory pool


def terms_of(resolved: Resolved, geometry: Geometry) -> Terms:
    """Read every input of sizing and allocation from an accepted server.

    Raises Rejected where the engine asserts, UnusableInput for pools that are not modelled.
    """
    v = resolved.values
    if is_hybrid_swa(resolved.model, disabled=bool(v["disable_hybrid_swa_memory"])):
        raise UnusableInput(
            "Its sliding-window layers have a pool of their own, which is not modelled.",
            where=resolved.model.path,
        )
    _check_groups(resolved)
    attn_tp = v["tp_size"] // v["attn_dp_size"] // v["attn_cp_size"]
    layout = _layout(geometry, v["pp_size"], resolved.env.get("SGLANG_PP_LAYER_PARTITION"))
    state = _state(resolved, geometry, attn_tp)
    slots = _slots_per_request(resolved)
    own = kv_cells.target_cells(resolved, geometry, layout.full, attn_tp)
    draft = kv_cells.draft_cells(resolved, own, layout.full, attn_tp)
    stages = tuple(map(Stage, layout.linear, own, draft))
    return Terms(
        attn_tp=attn_tp,
        layout=layout,
        state=state,
        kv_bytes=kv_cells.element_bytes(resolved),
        pool=_pool(resolved, geometry, attn_tp, layout, state, slots, stages),
        allocation=_allocation(resolved, geometry, state, bool(any(draft))),
        stages=stages,
        late_bytes=_late_bytes(resolved),
    )


def _check_groups(resolved: Resolved) -> None:
    """The engine checks its process groups before it sizes anything."""
    v = resolved.values
    tp, ep, dp = v["tp_size"], v["ep_size"], v["moe_dp_size"]
    width = tp // ep // dp if ep and dp else 0
    unchecked = v["dcp_size"] > 1  # with DCP ranks are laid out before the topology is checked
    if 0 in (ep, dp, v["attn_dp_size"], v["attn_cp_size"]) or (width == 0 and unchecked):
        raise Rejected("ZeroDivisionError: integer division or modulo by zero", stage="groups")
    if tp != ep * dp * width:
        raise Rejected(
            "ValueError: parallel topology is inconsistent (set by override_permanently):\n"
            "tp_size == moe_ep_size * moe_dp_size * moe_tp_size\n"
            f"  {tp} != {ep} * {dp} * {width} (= {ep * dp * width})",
            stage="groups",
        )


@lru_cache(maxsize=256)
def _layout(geometry: Geometry, pp: int, partition: str | None) -> Layout:
    spans = stage_layers(geometry.num_layers, pp, partition)
    return Layout(
        spans,
        tuple(sum(start <= n < end for n in geometry.linear_layers) for start, end in spans),
        tuple(sum(start <= n < end for n in geometry.full_layers) for start, end in spans),
    )


def state_dtype(resolved: Resolved) -> str:
    """The dtype of the recurrent states: the flag's, else the variable's, else float32."""
    return resolved["mamba_ssm_dtype"] or resolved.env.get("SGLANG_MAMBA_SSM_DTYPE") or "float32"


def _state(resolved: Resolved, geometry: Geometry, attn_tp: int) -> StateBytes | None:
    if geometry.state is None:
        return None
    v, env = resolved.values, resolved.env
    conv = env.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16")
    try:
        return _state_bytes(
            geometry.state,
            len(geometry.linear_layers),
            attn_tp,
            DTYPE_BYTES.get(state_dtype(resolved), 4),
            DTYPE_BYTES.get(conv, 2),
            v["linear_replayssm_cache_len"],
        )
    except Indivisible as error:
        raise Rejected(f"AssertionError: {error.message}", stage="pools") from None


@lru_cache(maxsize=256)
def _state_bytes(shape: StateShape, layers: int, attn_tp: int, ssm: int, conv: int, ring_length: int) -> StateBytes:
    window = shape.slot_bytes(attn_tp, 0, conv)
    whole = shape.slot_bytes(attn_tp, ssm, conv)
    ring = shape.ring_bytes(attn_tp, ring_length, conv)
    heads, keys = shape.value_heads // attn_tp, -(-shape.key_heads // attn_tp)
    gates = shape.key_dim if shape.kind == "kda" else 1
    records = (heads * shape.value_dim + keys * shape.key_dim) * ssm + heads * gates * 4
    layer = LayerState(
        conv_bytes=window,
        conv_window=shape.conv_kernel - 1,
        ssm_bytes=whole - window,
        checkpoint_bytes=heads * shape.key_dim * (shape.value_dim + ssm) + window,
        spec_ring_bytes=ring,
        decode_ring_bytes=ring_length * records,
    )
    return StateBytes(whole * layers, ring * layers, layer, ssm, conv)


def _slots_per_request(resolved: Resolved) -> int:
    v = resolved.values
    return slots_per_request(
        radix_off=v["disable_radix_cache"],
        strategy=v["mamba_radix_cache_strategy"],
        overlap_off=v["disable_overlap_schedule"],
        skip_decode_lock=resolved.flag_env("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"),
    )


def _pool(
    resolved: Resolved,
    geometry: Geometry,
    attn_tp: int,
    layout: Layout,
    state: StateBytes | None,
    slots: int,
    stages: tuple[Stage, ...],
) -> PoolInputs:
    v = resolved.values
    slot = ring = request_ring = 0
    replay = geometry.state is not None and _replays(resolved, geometry.state)
    if state is not None:
        share = max(layout.linear) / len(geometry.linear_layers)
        slot = int(state.slot * share)
        ring = int(state.ring * share) if replay else 0
        if geometry.state is not None and geometry.state.kind != "kda":
            ring, request_ring = 0, ring
    algorithm = v["speculative_algorithm"]
    return PoolInputs(
        free_gib=0.0,
        before_gib=0.0,
        fraction=v["mem_fraction_static"],
        mm_gib=_mm_gib(resolved),
        slot_bytes=slot,
        ring_bytes=ring,
        request_ring_bytes=request_ring,
        slots_per_request=slots,
        ratio=v["mamba_full_memory_ratio"],
        given_slots=v["max_mamba_cache_size"],
        asked=v["max_running_requests"],
        radix_off=v["disable_radix_cache"],
        reserves_steps=algorithm is not None and not replay and not _skips_verify_states(resolved),
        draft_tokens=v["speculative_num_draft_tokens"] or 0,
        attn_dp=v["attn_dp_size"],
        cells=tuple(s.kv_cell + s.draft_cell * kv_cells.draft_rows(resolved) for s in stages),
        scratch_bytes=kv_cells.shard_scratch_bytes(resolved, geometry, attn_tp),
        page=v["page_size"],
        context=_context(resolved),
        dcp=max(v["dcp_size"], 1),
        max_total_tokens=v["max_total_tokens"],
    )


def _allocation(resolved: Resolved, geometry: Geometry, state: StateBytes | None, drafts: bool) -> AllocationInputs:
    v, shape = resolved.values, geometry.state
    npu = resolved.platform.kind == "npu"
    kda = shape is not None and shape.kind == "kda"
    replay = shape is not None and _replays(resolved, shape)
    most = _most_draft_tokens(resolved)
    dcp = max(v["dcp_size"], 1)
    decode = v["disaggregation_mode"] == "decode" or bool(v["enable_pd_role_switch"])
    tracked = not v["disable_radix_cache"] and v["mamba_radix_cache_strategy"].startswith("extra_buffer")
    return AllocationInputs(
        page=v["page_size"],
        row_tokens=row_tokens(
            context=_context(resolved),
            page=v["page_size"] * dcp,
            spec_tokens=most,
            algorithm=v["speculative_algorithm"],
            steps=v["speculative_num_steps"],
            topk=v["speculative_eagle_topk"],
        ),
        draft_rows_per_row=dcp if drafts else 1,
        draft_rows_charged=kv_cells.draft_rows(resolved) if drafts else 1,
        layer=None if state is None else state.layer,
        spec_tokens=0 if _skips_verify_states(resolved) else most,
        step_states=not replay,
        window_shared=not (npu or kda) and (v["speculative_eagle_topk"] or 1) <= 1,
        window_grows=npu,
        spec_ring=replay,
        spec_ring_per_request=replay and not kda,
        ring_length=v["linear_replayssm_cache_len"],
        checks_ring=kda,
        decode_ring=bool(v["enable_linear_replayssm"]) and not decode,
        decode_pool=decode,
        extra_rows=v["disaggregation_decode_extra_slots"] or 0,
        tracking_slots=0 if not tracked else 1 if v["disable_overlap_schedule"] else 2,
        checkpoint=bool(v["enable_int8_mamba_checkpoint"]),
        checkpoint_slots=v["int8_mamba_ckpt_size"],
    )


def _replays(resolved: Resolved, shape: StateShape) -> bool:
    return bool(resolved["enable_linear_replayssm_spec"]) and shape.kind in REPLAYED_KINDS


def _skips_verify_states(resolved: Resolved) -> bool:
    """Whether this is a prefill server that never verifies, and whose pool knows it."""
    v = resolved.values
    return (
        v["disaggregation_mode"] == "prefill"
        and not v["enable_pd_role_switch"]
        and not v["enable_unified_memory"]
        and resolved.platform.kind != "npu"
    )


def _most_draft_tokens(resolved: Resolved) -> int:
    v = resolved.values
    draft: int = v["speculative_num_draft_tokens"] or 0
    return max(draft, max(CANDIDATE_STEPS) + 1) if draft and v["speculative_adaptive"] else draft


def _mm_gib(resolved: Resolved) -> float:
    model = resolved.engine_model
    if not (resolved.model.is_multimodal if model is None else model.is_multimodal):
        return 0.0
    mib = _int(resolved, "SGLANG_VLM_CACHE_SIZE_MB", 100)
    if resolved["mm_feature_transport"] in GPU_FEATURE_TRANSPORTS:
        mib += _int(resolved, "SGLANG_MM_FEATURE_CACHE_MB", 1024)
    return mib / MIB_PER_GIB


def _late_bytes(resolved: Resolved) -> int:
    if not resolved["enable_symm_mem"]:
        return 0
    return max(_int(resolved, "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE", 4), 0) << 30


def _context(resolved: Resolved) -> int:
    if resolved.engine_model is not None:
        return resolved.engine_model.context_length
    given = resolved["context_length"]
    return resolved.model.context_length if given is None else int(given)


def _int(resolved: Resolved, name: str, default: int) -> int:
    try:
        return int(resolved.env[name])
    except (KeyError, ValueError):
        return default
