"""What must hold of sizing on any memory, split or shape."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from memory_table import case
from perilune.plan.memory.pools import (
    GIB,
    Binds,
    PoolInputs,
    Sizing,
    rest_gib,
    size_pools,
    slots_per_request,
)
from perilune.plan.memory.split import Demand, holds, most_requests, request_tokens, split_for
from perilune.plan.resolve.state import Rejected

few = settings(max_examples=50, deadline=None)

K3_SLOT, K3_RING = 56_171_520, 20_401_920

plans = st.builds(
    PoolInputs,
    free_gib=st.floats(1, 200),
    before_gib=st.floats(100, 290),
    fraction=st.floats(0.5, 0.98),
    mm_gib=st.sampled_from([0.0, 100 / 1024, 1124 / 1024]),
    slot_bytes=st.sampled_from([0, K3_SLOT // 4, K3_SLOT, K3_SLOT * 8]),
    ring_bytes=st.sampled_from([0, K3_RING]),
    slots_per_request=st.integers(1, 5),
    ratio=st.floats(0.01, 20),
    given_slots=st.none() | st.integers(1, 2000),
    asked=st.none() | st.integers(1, 600),
    radix_off=st.booleans(),
    reserves_steps=st.just(False),
    attn_dp=st.sampled_from([1, 2, 4]),
    cells=st.lists(st.sampled_from([2304, 13_824, 27_648, 48_128]), min_size=1, max_size=4).map(tuple),
    page=st.sampled_from([1, 32, 64, 128]),
    context=st.sampled_from([8192, 131_072, 1_048_576]),
    dcp=st.sampled_from([1, 2, 8]),
    max_total_tokens=st.none() | st.integers(64, 2_000_000),
)
verifying = st.builds(
    lambda plan, draft, asked: replace(plan, reserves_steps=plan.slot_bytes > 0, draft_tokens=draft, asked=asked),
    plans,
    st.integers(2, 16),
    st.integers(1, 300),
)
any_plan = plans | verifying


def sized(plan: PoolInputs) -> Sizing | None:
    try:
        return size_pools(plan)
    except Rejected:
        return None


@few
@given(any_plan)
def test_the_pools_never_take_more_than_is_left(plan: PoolInputs) -> None:
    found = sized(plan)
    assume(found is not None)
    assert found is not None
    state = 0 if found.state is None else found.state.pool_bytes + found.state.reserve_bytes
    kv = found.tokens * max(plan.cells)
    assert state + kv <= rest_gib(plan) * GIB + 1


@few
@given(any_plan, st.floats(0.01, 100))
def test_more_memory_never_lowers_anything(plan: PoolInputs, more: float) -> None:
    found = sized(plan)
    assume(found is not None)
    richer = sized(replace(plan, free_gib=plan.free_gib + more))
    assert found is not None
    assert richer is not None
    assert (richer.slots or 0) >= (found.slots or 0)
    assert richer.requests >= found.requests
    if not plan.reserves_steps:  # more verified requests take their states from the KV pool
        assert richer.tokens >= found.tokens - plan.page - plan.per_slot // min(plan.cells)


@few
@given(any_plan)
def test_rows_are_whole_pages_and_requests_fit_their_pools(plan: PoolInputs) -> None:
    found = sized(plan)
    assume(found is not None)
    assert found is not None
    assert found.tokens % plan.page == 0
    assert found.logical_tokens == found.tokens * plan.dcp
    assert found.requests <= found.tokens // 2
    if found.slots is not None:
        assert 1 <= found.requests <= found.slots // plan.slots_per_request
    if plan.asked is not None:
        assert found.requests <= max(1, plan.asked // plan.attn_dp)


@few
@given(any_plan)
def test_what_binds_is_what_decides(plan: PoolInputs) -> None:
    found = sized(plan)
    assume(found is not None)
    assert found is not None
    asked = plan.asked_per_worker
    limits = {
        Binds.ASKED: found.automatic if asked is None else asked,
        Binds.KV: found.tokens // 2,
        Binds.STATE: math.inf if found.slots is None else found.slots // plan.slots_per_request,
    }
    assert found.requests == limits[found.binds] == min(limits.values())


@few
@given(plans, st.integers(1, 400), st.integers(1, 200_000))
def test_a_split_admits_its_demand_and_its_neighbours_do_not(plan: PoolInputs, concurrency: int, tokens: int) -> None:
    split = split_for(plan, Demand(concurrency, tokens))
    need = -(-concurrency // plan.attn_dp)
    allowed = plan if split.asked is None else replace(plan, asked=split.asked)
    if split.slots is not None:
        low, high = split.slots.low // plan.attn_dp, split.slots.high // plan.attn_dp
        tried = {n: holds(replace(allowed, given_slots=n * plan.attn_dp), need, tokens) for n in (low, high)}
        assert all(tried.values())
        for beyond in (low - 1, high + 1):
            assert not holds(replace(allowed, given_slots=beyond * plan.attn_dp), need, tokens)
    if split.ratios is not None:
        free = replace(allowed, given_slots=None)
        for ratio in (split.ratios.low, split.ratios.safest, split.ratios.high):
            assert holds(replace(free, ratio=float(ratio)), need, tokens), ratio
        step = split.ratios.low / 1000
        assert not holds(replace(free, ratio=float(split.ratios.low - step)), need, tokens)
    if split.slots is not None:
        assert split.admitted
        assert split.most >= concurrency
        assert split.short_gib == 0
    if not split.admitted:
        assert split.most < need * plan.attn_dp


@few
@given(plans, st.integers(1, 300_000))
def test_the_most_requests_fit_and_one_more_does_not(plan: PoolInputs, tokens: int) -> None:
    most = most_requests(plan, tokens)

    def fits(n: int) -> bool:
        slots = n * plan.slots_per_request * plan.attn_dp if plan.hybrid else None
        return holds(replace(plan, asked=n * plan.attn_dp, given_slots=slots), n, tokens)

    assert most == 0 or fits(most)
    assert not fits(most + 1)


@pytest.mark.parametrize(
    ("tokens", "page", "dcp", "taken"),
    [(1, 64, 1, 64), (64, 64, 1, 64), (65, 64, 1, 128), (9216, 64, 8, 9216), (9217, 64, 8, 9728), (1, 1, 1, 1)],
)
def test_a_request_takes_whole_pages_of_all_ranks(tokens: int, page: int, dcp: int, taken: int) -> None:
    assert request_tokens(PoolInputs(free_gib=1, before_gib=1, fraction=1, page=page, dcp=dcp), tokens) == taken


@pytest.mark.parametrize(
    ("strategy", "overlap_off", "skip", "slots"),
    [
        ("extra_buffer", False, False, 5),
        ("extra_buffer", True, False, 4),
        ("extra_buffer", False, True, 4),
        ("extra_buffer", True, True, 3),
        ("extra_buffer_lazy", False, False, 4),
        ("extra_buffer_lazy", False, True, 3),
        ("no_buffer", True, False, 3),
        ("no_buffer", True, True, 3),
    ],
)
def test_slots_per_request(strategy: str, overlap_off: bool, skip: bool, slots: int) -> None:
    found = slots_per_request(radix_off=False, strategy=strategy, overlap_off=overlap_off, skip_decode_lock=skip)
    assert found == slots
    off = slots_per_request(radix_off=True, strategy=strategy, overlap_off=overlap_off, skip_decode_lock=skip)
    assert off == 1


REFUSALS = {
    "no slot": ({"free_gib": 30.0}, "Not enough GPU memory for hybrid"),
    "explicit zero slots": ({"given_slots": 1, "attn_dp": 2}, "Computed max_mamba_cache_size=0 "),
    "nothing for KV": ({"given_slots": 700}, "Raise --mem-fraction-static above 0.726 "),
    "not one token": ({"max_total_tokens": 63}, "Not enough memory. Please try to increase"),
    "fewer slots than one request needs": ({"given_slots": 4}, "mamba_ratio=5, resulting max_num_reqs=0."),
    "request-keyed rings without a limit": ({"request_ring_bytes": 1 << 20}, "TypeError: unsupported operand"),
}


@pytest.mark.parametrize(("change", "says"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(change: dict[str, object], says: str) -> None:
    plan = case("02").plan.inputs
    assert plan is not None
    with pytest.raises(Rejected, match="Error: ") as caught:
        size_pools(replace(plan, **change))
    assert says in caught.value.message


def test_a_model_without_state_gives_everything_to_kv() -> None:
    plan = PoolInputs(
        free_gib=72.0, before_gib=265.0, fraction=0.85, cells=(70_272,), page=64, context=163_840, asked=512
    )
    found = size_pools(plan)
    assert found.slots is None
    assert found.tokens == int((72.0 - 265.0 * (1 - 0.85)) * GIB) // 70_272 // 64 * 64
    assert (found.requests, found.binds) == (512, Binds.ASKED)
