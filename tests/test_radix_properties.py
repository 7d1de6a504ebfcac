"""Whatever happens to a radix cache, both pools add up, and what is locked stays."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perilune.rehearse.radix import RadixCache, pools
from perilune.rehearse.radix.node import Node
from radix_table import SETUPS, Played, operations


def nodes(radix: RadixCache) -> list[Node]:
    found, left = [], list(radix._root.children.values())
    while left:
        node = left.pop()
        found.append(node)
        left += node.children.values()
    return found


def check(radix: Played) -> None:
    """Every count equals what the tree and the running requests say."""
    held_tokens, held_slots = radix.held()
    assert radix.tokens_free >= 0
    assert radix.slots_free >= 0
    assert radix.tokens_free + radix.tokens_cached + held_tokens == radix.tokens
    assert radix.slots_free + radix.slots_cached + held_slots == radix.slots
    found = nodes(radix)
    assert radix.tokens_cached == sum(node.end - node.start for node in found)
    assert radix.tokens_evictable == sum(node.end - node.start for node in found if not node.locks)
    assert radix.slots_cached == sum(node.state for node in found)
    assert radix.slots_evictable == sum(node.state for node in found if not node.state_locks)
    for node in found:
        assert node.start == node.parent.end
        assert node.parent.children[node.first] is node
        assert not node.start % radix.page
        assert not node.end % radix.page
        assert node.locks >= max((child.locks for child in node.children.values()), default=0)
        assert not node.gone
    for claim, *_ in radix.running.values():
        assert claim.cached == claim.node.end
        assert not claim.node.gone
        assert claim.node is radix._root or claim.node.locks


@pytest.mark.parametrize("name", SETUPS)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_both_pools_add_up(name: str, seed: int) -> None:
    radix = Played(SETUPS[name])
    for operation in operations(seed, 150, SETUPS[name]):
        radix.play(operation)
        check(radix)
    for rid in list(radix.running):
        radix.end(rid)
    check(radix)
    assert (radix.tokens_evictable, radix.slots_evictable) == (radix.tokens_cached, radix.slots_cached)
    assert radix.evict_tokens(radix.tokens)
    assert (radix.tokens_free, radix.slots_free) == (radix.tokens, radix.slots)


@pytest.mark.parametrize("name", ["extra_buffer", "extra_buffer, ample slots", "no state, tlru"])
def test_sweeping_the_queues_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = SETUPS[name]
    seldom = Played(setup)
    monkeypatch.setattr(pools, "LEAST_QUEUED", -10_000)
    always = Played(setup)
    for operation in operations(2, 3_000, setup):
        assert always.play(operation) == seldom.play(operation)


def test_queues_do_not_outgrow_what_is_cached() -> None:
    setup = SETUPS["extra_buffer, ample tokens"]  # states bind: leaves are only ever evicted by way of them
    radix = Played(setup)
    for operation in operations(1, 20_000, setup):
        radix.play(operation)
    assert len(radix._leaves) + len(radix._states) < 4 * len(nodes(radix)) + 2 * pools.LEAST_QUEUED
