"""Every figure of 58 command lines equals what SGLang 0.5.23's own code computes and allocates."""

from __future__ import annotations

import pytest

from memory_table import Case, cases

CASES = cases()
SIZED = [case for case in CASES if case.expect]
REFUSED = [case for case in CASES if case.error]


def by_id(found: list[Case]) -> dict[str, object]:
    return {"argvalues": found, "ids": [case.id for case in found]}


def test_the_table_is_whole() -> None:
    assert (len(CASES), len(SIZED), len(REFUSED)) == (58, 54, 4)


@pytest.mark.parametrize("case", **by_id(SIZED))
def test_sizes(case: Case) -> None:
    plan = case.plan
    assert plan.ok, plan.error
    found, sizing, expect = plan.to_json(), plan.sizing, case.expect
    assert sizing is not None
    assert sizing.state is not None
    assert {
        "S": found["slots_per_request"],
        "rest": found["rest_gib"],
        "kv_gib": found["kv_budget_gib"],
        "K": found["max_mamba_cache_size"],
        "tokens": found["max_total_num_tokens"],
        "logical": found["logical_token_capacity"],
        "requests": found["max_running_requests"],
        "micro_batch": found["pp_max_micro_batch_size"],
        "draft_tokens": found["draft_pool_tokens"],
    } == expect
    assert found["state_bytes_per_slot"] == case.slot_bytes
    assert found["ring_bytes_per_slot"] == case.ring_bytes
    assert found["mem_fraction_static"] == case.resolved["fraction"]


@pytest.mark.parametrize("case", **by_id(SIZED))
def test_stages_and_what_they_allocate(case: Case) -> None:
    plan = case.plan
    assert plan.sizing is not None
    for stage, (kda, mla, cell, before_minimum, pools) in zip(plan.stages, case.stages, strict=True):
        assert plan.terms is not None
        assert plan.inputs is not None
        assert (stage.stage.linear_layers, plan.terms.layout.full[stage.index]) == (kda, mla)
        assert plan.inputs.cells[stage.index] == cell
        if before_minimum is not None:
            assert plan.sizing.profiled_tokens[stage.index] == before_minimum
        if pools is None:
            continue
        built = stage.allocated
        assert built is not None
        found = [
            built.slots,
            built.request_rows,
            built.req_to_token,
            built.conv,
            built.ssm,
            built.step_ssm,
            built.step_conv,
            built.ring,
            built.kv_rows,
            built.kv,
        ]
        known = [mine if theirs is None else theirs for mine, theirs in zip(found, pools, strict=True)]
        assert found == known  # the NPU's KV pool cannot be built off an NPU: its figures are not known


@pytest.mark.parametrize("case", **by_id(REFUSED))
def test_refusals_have_the_engines_words(case: Case) -> None:
    plan = case.plan
    assert not plan.ok
    assert plan.error == case.error
    assert plan.to_json()["rest_gib"] == case.rest
    assert plan.to_json()["max_running_requests"] is None


@pytest.mark.parametrize("case", **by_id(SIZED))
def test_what_stops_the_boot_after_sizing(case: Case) -> None:
    assert case.plan.allocation_error == case.pool_error
    assert case.plan.boots == (case.pool_error is None)
