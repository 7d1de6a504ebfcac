"""From a ledger to the step times of each pipeline stage."""

from __future__ import annotations

from collections.abc import Callable

from perilune.facts.measurements import measurements
from perilune.facts.timing import Efficiency, latencies, machines
from perilune.plan.memory import Ledger
from perilune.plan.memory.terms import Terms
from perilune.plan.memory.weights import shape_of
from perilune.plan.model import ParallelShape
from perilune.plan.model.geometry.cache import LatentCache
from perilune.plan.resolve.state import Resolved
from perilune.rehearse.timing.collectives import US, Exchange, Fabric
from perilune.rehearse.timing.experts import top_k
from perilune.rehearse.timing.roofline import Speeds
from perilune.rehearse.timing.stage import Launch, Moved, StageTimes
from perilune.rehearse.timing.work import StageWork, draft_work, stage_work, verify_width

ELEMENT = 2  # bytes of an activation


def stages_of(ledger: Ledger, terms: Terms, efficiency: Efficiency) -> tuple[StageTimes, ...]:
    """The step times of every stage; the draft runs on the last."""
    resolved, geometry = ledger.resolved, ledger.geometry
    platform = resolved.platform
    shape, works = shape_of(resolved), stage_work(resolved, geometry)
    fabric = Fabric.of(resolved, machines()[platform.id], latencies())
    speeds = Speeds.of(platform.accelerator, efficiency)
    draft = draft_work(resolved, geometry)
    return tuple(
        StageTimes(
            work,
            _moved(resolved, terms, n),
            _exchange(ledger, terms, shape, work),
            fabric,
            speeds,
            _launch(resolved, efficiency, work),
            verify_width(resolved),
            draft if n == len(works) - 1 else None,
        )
        for n, work in enumerate(works)
    )


def hand_over_of(ledger: Ledger) -> Callable[[float], float]:
    """Seconds in which one stage hands so many tokens to the next: the stream and what the residual bank holds."""
    resolved = ledger.resolved
    shape, config = shape_of(resolved), ledger.geometry.config
    if shape.pp == 1:
        return lambda tokens: 0.0
    fabric = Fabric.of(resolved, machines()[resolved.platform.id], latencies())
    block = config.text.get("attn_res_block_size")
    rows = 1 + (config.num_layers // int(block) if isinstance(block, int) and block else 0)
    size = rows * config.hidden_size * ELEMENT
    return lambda tokens: fabric.hand_over(tokens * size, 2 * shape.tp)


def _moved(resolved: Resolved, terms: Terms, stage: int) -> Moved:
    """State: read and written once a step. A verify step with ReplaySSM writes a ring beside it; without, a state for
    each drafted token."""
    state, width = terms.state, verify_width(resolved)
    per_layer = 0
    if state is not None:
        slot = state.layer.ssm_bytes + state.layer.conv_bytes
        per_layer = 2 * slot
        if width > 1:
            per_layer += state.layer.spec_ring_bytes if terms.allocation.spec_ring else (width - 1) * slot
    held = terms.stages[stage]
    return Moved(
        state=per_layer * terms.layout.linear[stage],
        row=held.kv_cell,
        draft_row=held.draft_cell if stage == len(terms.stages) - 1 else 0,
        share=terms.pool.dcp,
    )


def _exchange(ledger: Ledger, terms: Terms, shape: ParallelShape, work: StageWork) -> Exchange:
    geometry, resolved = ledger.geometry, ledger.resolved
    config, experts, cache = geometry.config, geometry.experts, geometry.cache
    latent = experts.hidden * ELEMENT if experts and experts.hidden != config.hidden_size else 0
    width = cache.latent + cache.rope if isinstance(cache, LatentCache) else 0
    heads = config.num_heads // shape.attn_tp * shape.dcp
    return Exchange(
        shape=shape,
        layers=work.layers,
        moe=work.moe,
        full=work.full,
        hidden=config.hidden_size * ELEMENT,
        latent=latent,
        top_k=top_k(geometry) if experts else 0,
        query=heads * width * ELEMENT,
        row=width * ELEMENT,
        backend=resolved["dcp_comm_backend"],
        replicated_query=bool(resolved["dcp_replicate_q_proj"]),
        shared=any(t.group == "shared experts" for t in geometry.tensors),
    )


def _launch(resolved: Resolved, efficiency: Efficiency, work: StageWork) -> Launch:
    graphs = resolved["cuda_graph_config"].decode
    known = latencies()
    quantized = any(product.rate == "narrow" for product in work.decode.local)
    layer_us = efficiency.layer_us + (efficiency.quantize_us if quantized else 0.0)
    return Launch(
        layer_s=(layer_us + _unfused_us(resolved, work)) * US,
        eager_s=known.eager_layer_us.value * US,
        step_s=known.scheduler_us.value * US if resolved["disable_overlap_schedule"] else 0.0,
        graphs_to=0 if graphs.backend == "disabled" else graphs.max_bs or 0,
        slower=_slower(resolved),
    )


def _unfused_us(resolved: Resolved, work: StageWork) -> float:
    """What a layer saves on average when ROCm's KDA decode runs fused: the published 9.20 to 8.38 us a KDA layer."""
    if resolved.env.get("SGLANG_ROCM_K3_KDA_FUSED_BACKEND") != "aiter" or resolved.platform.kind != "hip":
        return 0.0
    row = _row("amd-fused-kda-decode", 0)
    return (row["after_us"] - row["before_us"]) * work.linear / work.layers


def _slower(resolved: Resolved) -> float:
    """ROCm's 4-bit activations cost a little more than 8-bit ones, as published for a whole server."""
    if (
        resolved.platform.kind != "hip"
        or not resolved.flag_env("AITER_SITUV2_A4W4")
        or resolved.flag_env("AITER_SITUV2_A8W4")
    ):
        return 1.0
    return _row("amd-situ-quantization", 0)["tokens_per_s"] / _row("amd-situ-quantization", 1)["tokens_per_s"]


def _row(figure: str, number: int) -> dict[str, float]:
    found = next(entry for entry in measurements().figures if entry.id == figure)
    return {name: value for name, value in found.rows[number].items() if isinstance(value, float | int)}
