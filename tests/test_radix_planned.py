"""The radix cache of a planned server: its pools are the ledger's, its rules the resolved arguments'."""

from __future__ import annotations

import pytest

from perilune.errors import Refused, UnusableInput
from perilune.plan.compose.choice import Choice, parse_env, parse_set
from perilune.plan.compose.compose import compose
from perilune.plan.planned import PlannedPool, plan
from perilune.rehearse.radix import RadixCache, Snapshots
from perilune.rehearse.radix.planned import cache_settings


def pool(*edits: str, env: str | None = None, mode: str = "unified", hardware: str = "b300") -> PlannedPool:
    overrides = [parse_set(edit) for edit in edits] + ([parse_env(env)] if env else [])
    return plan(compose(Choice(hardware=hardware, mode=mode, overrides=tuple(overrides)))).pools[-1]


def test_both_pools_are_those_of_the_ledger() -> None:
    planned = pool()
    sizing = planned.ledger.sizing
    assert sizing is not None
    cache = RadixCache(**cache_settings(planned))
    assert (cache.tokens, cache.slots) == (sizing.logical_tokens, sizing.slots)
    assert (cache.tokens_free, cache.slots_free) == (cache.tokens, cache.slots)
    assert cache.slots_per_request < planned.ledger.inputs.slots_per_request  # a locked state is in the tree


def test_the_rules_are_those_of_the_resolved_arguments() -> None:
    given = cache_settings(
        pool(
            "mamba-radix-cache-strategy=extra_buffer_lazy",
            "mamba-max-states-per-path=4",
            "radix-eviction-policy=slru",
            env="SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1",
        )
    )
    assert given["snapshots"] == Snapshots.of(
        "extra_buffer_lazy", page_size=64, dcp=8, kernel_chunk=64, track_interval=256, overlap=True
    )
    assert given["skip_decode_lock"]
    assert (given["max_states_per_path"], given["policy"]) == (4, "slru")


def test_without_a_radix_cache() -> None:
    cache = RadixCache(**cache_settings(pool("--disable-radix-cache")))
    assert cache.disabled
    assert cache.slots_per_request == 1


def test_dcp_widens_the_page() -> None:
    assert RadixCache(**cache_settings(pool("dcp-size=8"))).page == 512
    assert RadixCache(**cache_settings(pool("dcp-size=1"))).page == 64


@pytest.mark.parametrize("flag", ["--enable-unified-memory", "--enable-int8-mamba-checkpoint"])
def test_pools_under_other_rules_are_refused(flag: str) -> None:
    planned = pool(flag)
    with pytest.raises((Refused, UnusableInput), match=flag if planned.ledger.ok else "does not boot"):
        cache_settings(planned)
