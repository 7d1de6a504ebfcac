"""A ledger as plain data: the contract of `perilune memory --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perilune.plan.memory.ledger import Ledger, StageLedger
    from perilune.plan.memory.pools import PoolInputs


def ledger_json(ledger: Ledger, demand: tuple[int, int] | None) -> dict[str, Any]:
    """One object; figures that an error left undetermined are null. Bytes and GiB are per GPU."""
    terms, inputs, sizing, memory = ledger.terms, ledger.inputs, ledger.sizing, ledger.memory
    figures = ledger.figures
    rest = figures.get("rest_gib")
    share = None if sizing is None else sizing.state
    found: dict[str, Any] = {
        "ok": ledger.ok,
        "error": ledger.error,
        "error_stage": ledger.error_stage,
        "allocation_error": ledger.allocation_error,
        "platform": ledger.resolved.platform.id,
        "basis": str(ledger.basis),
        "device_total_bytes": memory and memory.total_bytes,
        "free_before_load_gib": memory and memory.before_gib,
        "free_after_weights_gib": memory and memory.free_gib,
        "mem_fraction_static": ledger.resolved.values.get("mem_fraction_static"),
        "weights_bytes": ledger.weights_bytes or None,
        "state_bytes_per_slot": terms and terms.state and terms.state.slot,
        "ring_bytes_per_slot": terms and terms.state and terms.state.ring,
        "ring_charged": inputs and (inputs.ring_bytes > 0 or inputs.request_ring_bytes > 0),
        "slots_per_request": inputs.slots_per_request if inputs and inputs.hybrid else None,
        "rest_gib": rest and rest.value,
        "max_mamba_cache_size": share and share.slots,
        "kv_bytes_per_token": inputs and inputs.cells[0],
        "kv_budget_gib": share.kv_gib if share else rest and rest.value,
        "max_total_num_tokens": sizing and sizing.tokens,
        "logical_token_capacity": sizing and sizing.logical_tokens,
        "max_running_requests": sizing and sizing.requests,
        "admitted": ledger.admitted,
        "binds": sizing and str(sizing.binds),
        "pp_max_micro_batch_size": sizing and sizing.micro_batch,
        "draft_pool_tokens": ledger.draft_tokens,
        "stages": [_stage(ledger, stage) for stage in ledger.stages],
        "warnings": list(ledger.warnings),
    }
    if ledger.requests_range and ledger.tokens_range:
        found["range"] = {
            "max_running_requests": [ledger.requests_range.low, ledger.requests_range.high],
            "max_total_num_tokens": [ledger.tokens_range.low, ledger.tokens_range.high],
        }
    if demand is not None:
        load = ledger.workload(*demand)
        found["workload"] = load and {
            "tokens_per_request": load.tokens,
            "requests_by_kv": load.by_kv,
            "requests_by_state": load.by_state,
            "admitted": load.admitted,
            "binds": load.binds,
            "tokens_per_request_at_cap": load.tokens_at_cap,
        }
    return found


def _capped(tokens: int, inputs: PoolInputs) -> int:
    return tokens if inputs.max_total_tokens is None else min(tokens, inputs.max_total_tokens)


def _stage(ledger: Ledger, stage: StageLedger) -> dict[str, Any]:
    sizing, inputs, pools = ledger.sizing, ledger.inputs, stage.allocated
    return {
        "stage": stage.index,
        "layers": list(stage.layers),
        "linear_layers": stage.stage.linear_layers,
        "kv_bytes_per_token": inputs and inputs.cells[stage.index],
        "tokens_before_minimum": sizing and inputs and _capped(sizing.profiled_tokens[stage.index], inputs),
        "weights_bytes": stage.weights.bytes,
        "free_after_weights_gib": stage.free_gib,
        "lines": [
            {
                "name": line.name,
                "label": line.label,
                "bytes": line.value,
                "formula": line.formula,
                "source": line.source,
                "basis": str(line.basis),
            }
            for line in ledger.lines(stage.index)
        ],
        "pools": pools
        and {
            "mamba_pool_slots": pools.slots,
            "request_rows": pools.request_rows,
            "kv_rows": pools.kv_rows,
            "conv_bytes": pools.conv,
            "ssm_bytes": pools.ssm,
            "intermediate_ssm_bytes": pools.step_ssm,
            "intermediate_conv_bytes": pools.step_conv,
            "ring_bytes": pools.ring,
            "checkpoint_bytes": pools.checkpoint,
            "req_to_token_bytes": pools.req_to_token,
            "kv_bytes": pools.kv,
            "draft_kv_bytes": pools.draft_kv,
        },
    }
