"""Planned servers: what they admit under too much load is what the ledger says, and unmodelled flags are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perilune.errors import UnusableInput
from perilune.plan.compose import Choice, compose, parse_set
from perilune.plan.planned import PlannedPool, plan
from perilune.rehearse.engine import Engine, acceptance_of, engine_of
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.radix.planned import cache_settings
from perilune.rehearse.simulate import simulate
from perilune.rehearse.traces import Lengths, closed_loop
from rehearse_servers import Times, fleet_of


def pool(*, sets: tuple[str, ...] = (), **choice: Any) -> PlannedPool:
    made = Choice(overrides=tuple(parse_set(text) for text in sets), **choice)
    return plan(compose(made)).pools[0]


def engine(item: PlannedPool) -> Engine:
    speculates = item.resolved["speculative_algorithm"] is not None
    return engine_of(
        item, partial(RadixCache, **cache_settings(item)), acceptance=acceptance_of([(4.5, 1)]) if speculates else None
    )


DP_ATTENTION = ("--dp-size=2", "--enable-dp-attention", "--enable-dp-lm-head")

PLANNED = {
    "b300 balanced": {"hardware": "b300", "strategy": "balanced"},
    "b300 low latency": {"hardware": "b300", "strategy": "low-latency"},
    "b300 without speculation": {"hardware": "b300", "strategy": "balanced", "spec": "none"},
    "mi350x balanced": {"hardware": "mi350x", "strategy": "balanced"},
    "h200, two nodes": {"hardware": "h200"},
    "attention DP": {"hardware": "b300", "strategy": "balanced", "sets": DP_ATTENTION},
}


@pytest.mark.parametrize("choice", PLANNED.values(), ids=PLANNED)
def test_an_overloaded_server_admits_what_its_ledger_says(choice: dict[str, Any]) -> None:
    item = pool(**choice)
    sizing, inputs = item.ledger.sizing, item.ledger.inputs
    assert sizing is not None
    assert inputs is not None
    cap = sizing.requests * inputs.attn_dp
    load = closed_loop(Lengths(isl=1024, osl=128), 2 * cap, 3 * cap)
    found = simulate(load, fleet_of([(engine(item), Times())]))
    assert found.requests.completed == 3 * cap
    assert found.admitted_max == found.replicas[0].admitted_max == cap


UNMODELLED = [
    ("--schedule-policy=hrrn", "--schedule-policy"),
    ("--prefill-decode-interval=4", "--prefill-decode-interval"),
    ("--enable-prefill-delayer", "--enable-prefill-delayer"),
]


@pytest.mark.parametrize(("written", "where"), UNMODELLED)
def test_what_is_not_modelled_is_refused(written: str, where: str) -> None:
    item = pool(hardware="b300", strategy="balanced", sets=(written,))
    with pytest.raises(UnusableInput) as refused:
        engine(item)
    assert refused.value.where == where


def test_speculation_needs_an_acceptance_length() -> None:
    item = pool(hardware="b300", strategy="balanced", spec="dspark")
    with pytest.raises(ValueError, match="acceptance length"):
        engine_of(item, partial(RadixCache, **cache_settings(item)))
