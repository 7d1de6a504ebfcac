"""The results of a ledger and the figures they were made from, each with its derivation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perilune.plan.memory.figures import Basis, Figure
from perilune.plan.memory.lines import BOOT_LOG, CONFIGURATOR, overhead_source, residue_source
from perilune.plan.memory.pools import GIB, Binds, PoolInputs, Sizing
from perilune.plan.memory.predict import overhead

if TYPE_CHECKING:
    from perilune.plan.memory.ledger import Ledger

PIPELINE = "SGLang 0.5.23 arg_groups/"
POOL_CONFIGURATOR = "SGLang 0.5.23 model_executor/pool_configurator.py"
CACHE_PARAMS = "SGLang 0.5.23 configs/mamba_utils.py"
ALLOCATION = "SGLang 0.5.23 mem_cache/allocation_sizing.py"


def results(ledger: Ledger) -> Iterator[Figure]:
    """Every figure of a ledger that is not a line of one GPU's memory."""
    if ledger.terms is None or ledger.inputs is None or ledger.memory is None:
        return
    yield from _memory(ledger)
    yield from _model(ledger)
    yield from _choices(ledger, ledger.inputs)
    if ledger.sizing is not None:
        yield from _state(ledger, ledger.inputs, ledger.sizing)
        yield from _tokens(ledger, ledger.inputs, ledger.sizing)
        yield from _requests(ledger, ledger.inputs, ledger.sizing)


def _memory(ledger: Ledger) -> Iterator[Figure]:
    memory, platform, inputs = ledger.memory, ledger.resolved.platform, ledger.inputs
    if memory is None or inputs is None:
        return
    card = platform.accelerator
    yield Figure(
        "device_total",
        "device memory",
        memory.total_bytes,
        "B",
        f"{card.memory_mib:,} MiB",
        f"{card.memory_source} ({card.memory_confidence} confidence)",
    )
    measured = memory.basis is Basis.EXACT
    taken, left = overhead(platform.id), memory.left
    yield Figure(
        "free_before_load_gib",
        "free before loading",
        memory.before_gib,
        "GiB",
        "measured" if measured else f"{memory.total_bytes / GIB:.2f} - {taken.gib} GiB of contexts and NCCL",
        BOOT_LOG if measured else overhead_source(platform),
        memory.basis,
        () if measured else ("device_total",),
    )
    yield Figure(
        "free_after_weights_gib",
        "free after weights",
        memory.free_gib,
        "GiB",
        "measured, minimum over ranks"
        if left is None
        else f"{memory.before_gib:.2f} - {ledger.weights_bytes / GIB:.2f} of weights - {left.gib} GiB",
        BOOT_LOG if left is None else f"{left.gib} GiB {residue_source(left)}",
        memory.basis,
        () if measured else ("free_before_load_gib", "weights_bytes"),
    )
    yield Figure(
        "rest_gib",
        "left for both pools",
        inputs.free_gib - inputs.before_gib * (1 - inputs.fraction) - inputs.mm_gib,
        "GiB",
        f"{inputs.free_gib:g} - {inputs.before_gib:g} x (1 - {inputs.fraction:g}) - {inputs.mm_gib:g}",
        CONFIGURATOR,
        memory.basis,
        ("free_after_weights_gib", "free_before_load_gib", "mem_fraction_static"),
    )


def _model(ledger: Ledger) -> Iterator[Figure]:
    terms, geometry = ledger.terms, ledger.geometry
    if terms is None:
        return
    fullest = max(ledger.stages, key=lambda stage: stage.weights.bytes)
    groups = (*fullest.weights.target, *fullest.weights.draft)
    lines = [f"{group.name} {group.bytes / GIB:.2f}" for group in groups]
    if groups:
        yield Figure(
            "weights_bytes",
            "weights on the fullest GPU",
            ledger.weights_bytes,
            "B",
            " + ".join(lines) + " GiB",
            geometry.source or "model geometry",
        )
    cells = terms.pool.cells
    stage = terms.stages[0]
    drafted = f" + {cells[0] - stage.kv_cell:,} B of draft" if cells[0] != stage.kv_cell else ""
    yield Figure(
        "kv_bytes_per_token",
        "KV bytes per row",
        cells[0],
        "B",
        f"{terms.layout.full[0]} layers, {stage.kv_cell:,} B{drafted}"
        + (f"; other stages {', '.join(f'{c:,}' for c in cells[1:])}" if len(set(cells)) > 1 else ""),
        f"{POOL_CONFIGURATOR}; {geometry.kv_formula(terms.kv_bytes, terms.attn_tp)}",
    )
    if terms.state is None:
        return
    yield Figure(
        "state_bytes_per_slot",
        "state bytes per slot",
        terms.state.slot,
        "B",
        geometry.state_formula(terms.attn_tp, terms.state.ssm_bytes, terms.state.conv_bytes),
        CACHE_PARAMS,
    )
    yield Figure(
        "ring_bytes_per_slot",
        "ReplaySSM ring per slot",
        terms.state.ring,
        "B",
        f"{len(geometry.linear_layers)} layers x {terms.allocation.ring_length} tokens"
        + ("" if terms.allocation.spec_ring else "; not charged: --enable-linear-replayssm-spec is off"),
        CACHE_PARAMS,
    )


def _choices(ledger: Ledger, i: PoolInputs) -> Iterator[Figure]:
    rewrites = {rewrite.field: rewrite.reason for rewrite in ledger.resolved.rewrites}
    for name, label, value in (
        ("mem_fraction_static", "memory fraction", i.fraction),
        ("mamba_full_memory_ratio", "state to KV ratio", i.ratio),
        ("page_size", "page size", i.page),
        ("max_running_requests_flag", "requests asked for", i.asked),
    ):
        field = name.removesuffix("_flag")
        reason = rewrites.get(field, "as given" if field in ledger.resolved.given else "the engine's default")
        yield Figure(name, label, value, "", reason, PIPELINE)
    if i.hybrid:
        v = ledger.resolved.values
        strategy = "radix cache off" if i.radix_off else v["mamba_radix_cache_strategy"]
        overlap = "off" if v["disable_overlap_schedule"] else "on"
        yield Figure(
            "slots_per_request",
            "state slots per request",
            i.slots_per_request,
            "slots",
            f"{strategy}, overlap {overlap}",
            f"{CONFIGURATOR}, {ALLOCATION}",
        )


def _state(ledger: Ledger, i: PoolInputs, sizing: Sizing) -> Iterator[Figure]:
    share = sizing.state
    if share is None:
        return
    inputs: tuple[str, ...] = ()
    if share.rule == "given":
        formula = f"{i.given_slots:,} given // attention DP {i.attn_dp}"
    elif share.rule == "requests":
        formula = f"--max-running-requests {i.asked:,} // attention DP {i.attn_dp} (radix cache off)"
        inputs = ("max_running_requests_flag",)
    else:
        formula, inputs = (
            _ratio_formula(i, sizing),
            ("rest_gib", "mamba_full_memory_ratio", "slot_charge_bytes"),
        )
    yield Figure(
        "slot_charge_bytes",
        "charged per slot",
        i.per_slot,
        "B",
        f"{i.slot_bytes:,} B of state + {i.ring_bytes:,} B of ring"
        + (" on the stage with most recurrent layers" if len(i.cells) > 1 else ""),
        CONFIGURATOR,
        inputs=("state_bytes_per_slot", "ring_bytes_per_slot"),
    )
    yield Figure(
        "max_mamba_cache_size",
        "state slots",
        share.slots,
        "slots",
        formula,
        CONFIGURATOR,
        ledger.basis,
        inputs,
    )
    yield Figure(
        "step_reserve_bytes",
        "reserved for states per draft token",
        share.reserve_bytes,
        "B",
        f"{i.slot_bytes:,} B x {i.draft_tokens} x (requests + 1)" if share.reserve_bytes else "none is kept",
        CONFIGURATOR,
        ledger.basis,
    )
    yield Figure(
        "kv_budget_gib",
        "left for KV",
        share.kv_gib,
        "GiB",
        f"{sizing.rest_gib:.4f} - {share.reserve_bytes / GIB:.4f} - {share.pool_bytes / GIB:.4f} GiB "
        f"({share.slots + 1:,} slots)",
        CONFIGURATOR,
        ledger.basis,
        ("rest_gib", "step_reserve_bytes", "max_mamba_cache_size", "slot_charge_bytes"),
    )


def _ratio_formula(i: PoolInputs, sizing: Sizing) -> str:
    budget = f"{sizing.rest_gib:.4f} GiB x {i.ratio:g} / {1 + i.ratio:g}"
    if i.reserves_steps:
        return (
            f"({budget} - {i.slot_bytes:,} B x (1 + {i.draft_tokens}) - {i.ring_bytes:,} B) // "
            f"({i.slot_bytes:,} B x (1 + {i.draft_tokens} / {i.slots_per_request}) + {i.ring_bytes:,} B)"
        )
    return f"({budget} - {i.per_slot:,} B) // {i.per_slot:,} B"


def _tokens(ledger: Ledger, i: PoolInputs, sizing: Sizing) -> Iterator[Figure]:
    cell = max(i.cells)
    formula = f"{sizing.kv_bytes:,} B // {cell:,} B, down to whole pages of {i.page}"
    if i.max_total_tokens is not None:
        formula += f", at most --max-total-tokens {i.max_total_tokens:,}"
    if len(i.cells) > 1:
        formula += f"; the least of {len(i.cells)} PP stages"
    source = ("kv_budget_gib",) if i.hybrid else ("rest_gib",)
    yield Figure(
        "max_total_num_tokens",
        "KV rows",
        sizing.tokens,
        "tokens",
        formula,
        f"{CONFIGURATOR}, {POOL_CONFIGURATOR}",
        ledger.basis,
        (*source, "kv_bytes_per_token"),
    )
    yield Figure(
        "logical_token_capacity",
        "tokens requests can use",
        sizing.logical_tokens,
        "tokens",
        f"{sizing.tokens:,} rows x DCP {i.dcp}",
        CONFIGURATOR,
        ledger.basis,
        ("max_total_num_tokens",),
    )


def _requests(ledger: Ledger, i: PoolInputs, sizing: Sizing) -> Iterator[Figure]:
    asked = i.asked_per_worker
    limit = f"{asked:,} asked" if asked is not None else f"{sizing.automatic:,} automatic"
    parts = [limit, f"{sizing.tokens:,} // 2"]
    inputs = ["max_total_num_tokens"]
    if sizing.slots is not None:
        parts.append(f"{sizing.slots:,} // {i.slots_per_request}")
        inputs += ["max_mamba_cache_size", "slots_per_request"]
    if asked is not None:
        inputs.append("max_running_requests_flag")
    yield Figure(
        "max_running_requests",
        "requests at once",
        sizing.requests,
        "requests",
        f"min({', '.join(parts)})" + (" per attention-DP worker" if i.attn_dp > 1 else ""),
        CONFIGURATOR,
        ledger.basis,
        tuple(inputs),
    )
    what = {
        Binds.STATE: "the state pool is the smallest",
        Binds.KV: "two tokens per request are the smallest",
        Binds.ASKED: "the request limit is the smallest",
    }[sizing.binds]
    yield Figure("binds", "what binds", str(sizing.binds), "", what, CONFIGURATOR, ledger.basis, tuple(inputs))
