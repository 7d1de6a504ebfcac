"""Prefixes that the device evicted come back from the host, and from the store behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perilune.plan.compose import Choice, compose, parse_set
from perilune.plan.planned import plan
from perilune.rehearse.hicache import HostedCache, HostSettings, Tier, host_settings, new_store
from perilune.rehearse.radix import Claim, Key, RadixCache, Snapshots
from perilune.rehearse.ticks import SECOND

PAGE = 64
HOST = HostSettings(tokens=1 << 20, slots=1000, write_policy="write_through")
STATES = Snapshots.of("no_buffer", page_size=1, dcp=1, kernel_chunk=64, track_interval=256, overlap=True)


def kv_only(host: HostSettings = HOST, *, pages: int = 4, store: Tier | None = None) -> HostedCache:
    return HostedCache(host=host, store=store, tokens=pages * PAGE, page=PAGE)


def hybrid(host: HostSettings = HOST, *, tokens: int = 400, slots: int = 4, store: Tier | None = None) -> HostedCache:
    return HostedCache(host=host, store=store, tokens=tokens, page=1, slots=slots, snapshots=STATES)


def key(*blocks: int) -> Key:
    return Key(blocks, PAGE)


def serve(cache: RadixCache, prompt: Key, length: int) -> int:
    """One request of `length` prompt tokens, from match to finish; returns the tokens it found."""
    claim = Claim(prompt)
    found = cache.match(claim, length - 1)
    cache.lock(claim)
    assert cache.take_slots([claim])
    need = -(-length // cache.page) * cache.page - found
    assert cache.allocate_tokens(need)
    cache.finish(claim, found, length, length)
    return found


def test_a_prefix_that_the_device_evicted_is_loaded_back() -> None:
    cache = kv_only()
    assert serve(cache, key(1, 2, 3), 192) == 0
    assert serve(cache, key(7, 8, 9), 192) == 0  # evicts the first
    assert cache.peek(key(1, 2, 3), 192) == 0
    assert serve(cache, key(1, 2, 3, 4), 193) == 192
    assert cache.take_loads() == [192]
    assert cache.take_loads() == []
    assert RadixCache(tokens=4 * PAGE, page=PAGE).peek(key(1), 64) == 0


def test_only_what_the_device_lacks_is_loaded() -> None:
    cache = kv_only(pages=5)
    serve(cache, key(1, 2, 3), 192)
    serve(cache, key(1), 64)
    assert cache.evict_tokens(4 * PAGE)  # the tail goes, the first page stays
    assert cache.peek(key(1, 2, 3), 192) == 64
    assert serve(cache, key(1, 2, 3, 4), 256) == 192
    assert cache.take_loads() == [128]


def test_a_state_comes_back_with_its_prefix() -> None:
    cache = hybrid()
    serve(cache, key(1, 2, 3), 192)
    serve(cache, key(7, 8, 9), 192)
    assert cache.evict_tokens(400)
    assert cache.peek(key(1, 2, 3), 192) == 0
    assert serve(cache, key(1, 2, 3, 4), 200) == 192
    assert cache.take_loads() == [192]


def test_a_state_alone_is_loaded_where_the_kv_is_still_there() -> None:
    cache = hybrid(slots=2)
    serve(cache, key(1, 2, 3, 4), 256)
    serve(cache, key(1, 2), 128)
    holder = Claim(key(1, 2, 3, 4))
    cache.match(holder, 256)  # the copy of its state takes the slot of the one in the middle
    cache.lock(holder)
    assert cache.peek(key(1, 2, 9), 192) == 0
    assert cache.peek(key(1, 2, 9), 192, states=False) == 128
    cache.unlock(holder)
    cache.unmatch(holder)
    assert serve(cache, key(1, 2, 9), 192) == 128
    assert cache.take_loads() == [0]


@pytest.mark.parametrize(
    ("policy", "once", "twice", "evicted"),
    [("write_through", 128, 128, 128), ("write_through_selective", 0, 64, 64), ("write_back", 0, 0, 128)],
)
def test_when_a_prefix_is_copied_to_the_host(policy: str, once: int, twice: int, evicted: int) -> None:
    cache = kv_only(replace(HOST, write_policy=policy), pages=6)  # type: ignore[arg-type]
    serve(cache, key(1, 2), 128)
    assert cache.host.peek(key(1, 2), 128) == once
    serve(cache, key(1, 5), 128)  # comes along the first page
    assert cache.host.peek(key(1, 2), 128) == twice
    assert cache.evict_tokens(6 * PAGE)
    assert cache.host.peek(key(1, 2), 128) == evicted


def test_a_host_that_is_full_forgets_its_oldest() -> None:
    cache = kv_only(replace(HOST, tokens=4 * PAGE), pages=4)
    for first in (10, 20, 30):
        serve(cache, key(first, first + 1), 128)
    assert [cache.host.peek(key(first, first + 1), 128) for first in (10, 20, 30)] == [0, 128, 128]
    assert not cache.host.keep(key(*range(50, 60)), 640, state=False)  # larger than all of it


def test_nothing_is_loaded_where_running_requests_leave_no_room() -> None:
    cache = kv_only()
    serve(cache, key(1, 2, 3), 192)
    busy = Claim(key(9))
    cache.match(busy, 10)
    assert cache.allocate_tokens(3 * PAGE)
    claim = Claim(key(1, 2, 3))
    assert cache.match(claim, 191) == 0
    assert cache.take_loads() == []


def test_what_left_the_host_is_fetched_from_the_store() -> None:
    store = new_store(PAGE, states=False)
    small = replace(HOST, tokens=4 * PAGE, storage=True)
    cache, other = kv_only(small, store=store), kv_only(small, store=store)
    long = key(1, 2, 3, 4)
    serve(cache, long, 256)
    serve(cache, key(7, 8, 9, 10), 256)
    assert cache.host.peek(long, 256) == 0
    assert cache.stored(long, 256) == 256
    assert other.stored(long, 256) == 256  # replicas share it
    assert cache.stored(key(1, 2, 3, 99), 256) == 0  # 192 tokens are not worth a fetch
    assert cache.fetched(long, 256) == 256
    assert cache.fetched(long, 256) == 0  # it is there
    assert cache.stored(long, 256) == 0
    assert serve(cache, key(1, 2, 3, 4), 256) == 192  # a prompt's last token is always computed
    assert kv_only(HOST, store=store).stored(long, 256) == 0  # no storage backend


@pytest.mark.parametrize(
    ("policy", "tokens", "waits"),
    [("best_effort", 4096, 0), ("wait_complete", 4096, None), ("timeout", 4096, 2 * SECOND), ("timeout", 0, SECOND)],
)
def test_how_long_admission_waits_for_a_fetch(policy: str, tokens: int, waits: int | None) -> None:
    assert replace(HOST, fetch_policy=policy).patience(tokens) == waits  # type: ignore[arg-type]


CELL, SLOT = 24 * 576 * 2, 449_372_160 // 8
"""Bytes of a KV token (the latent rows of 24 layers) and of a state slot on one of eight GPUs."""


@pytest.mark.parametrize(
    ("flags", "times"),
    [((), 2.0), (("--hicache-ratio=3",), 3.0), (("--hicache-size=100",), None)],
)
def test_how_much_the_host_holds(flags: tuple[str, ...], times: float | None) -> None:
    """A ratio multiplies both pools; a size in GB is shared out so that both are multiplied alike."""
    edits = tuple(map(parse_set, ("--enable-hierarchical-cache", *flags)))
    item = plan(compose(Choice(hardware="b300", strategy="low-latency", spec="none", overrides=edits))).pools[0]
    found, device = host_settings(item), item.ledger.sizing
    assert found is not None
    assert device is not None
    assert device.slots is not None
    if times is None:
        assert found.tokens * CELL + found.slots * SLOT == pytest.approx(100e9, rel=0.01)
        times = 100e9 / (device.tokens * CELL + device.slots * SLOT)
    assert found.tokens == pytest.approx(times * device.tokens, rel=0.01)
    assert found.slots == pytest.approx(times * device.slots, rel=0.01)


@pytest.mark.parametrize(
    ("flags", "settings_"),
    [
        ((), ("write_through", False, "timeout")),
        (
            (
                "--hicache-write-policy=write_back",
                "--hicache-storage-backend=file",
                "--hicache-storage-prefetch-policy=best_effort",
            ),
            ("write_back", True, "best_effort"),
        ),
    ],
)
def test_the_policies_are_those_of_the_server(flags: tuple[str, ...], settings_: tuple[str, bool, str]) -> None:
    edits = tuple(map(parse_set, ("--enable-hierarchical-cache", *flags)))
    item = plan(compose(Choice(hardware="b300", strategy="low-latency", spec="none", overrides=edits))).pools[0]
    found = host_settings(item)
    assert found is not None
    assert (found.write_policy, found.storage, found.fetch_policy) == settings_


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(prompts, st.integers(1, 5 * PAGE)), max_size=30),
    st.sampled_from(["write_through", "write_through_selective", "write_back"]),
    st.booleans(),
    st.integers(2, 12),
)
def test_pools_add_up_and_a_host_never_costs_hits(
    requests: list[tuple[list[int], int]], policy: str, states: bool, host_pages: int
) -> None:
    host = HostSettings(host_pages * PAGE, host_pages, policy)  # type: ignore[arg-type]
    cache = hybrid(host, tokens=6 * PAGE, slots=3) if states else kv_only(host, pages=6)
    total = 0
    for blocks, length in requests:
        total += serve(cache, key(*blocks), min(length, len(blocks) * PAGE))
        for tier in (cache, cache.host):
            assert tier.tokens_free + tier.tokens_cached == tier.tokens
            assert tier.tokens_evictable == tier.tokens_cached
            assert tier.slots_free + tier.slots_cached == tier.slots
            assert min(tier.tokens_free, tier.slots_free) >= 0
    assert sum(cache.take_loads()) <= total


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(prompts, st.integers(1, 5 * PAGE)), max_size=30), st.booleans())
def test_with_a_host_that_holds_all_a_small_device_finds_what_a_large_one_does(
    requests: list[tuple[list[int], int]], states: bool
) -> None:
    large: RadixCache
    if states:
        small, large = hybrid(tokens=6 * PAGE, slots=3), RadixCache(tokens=1 << 20, page=1, slots=999, snapshots=STATES)
    else:
        small, large = kv_only(pages=6), RadixCache(tokens=1 << 20, page=PAGE)
    for blocks, length in requests:
        tokens = min(length, len(blocks) * PAGE)
        assert serve(small, key(*blocks), tokens) == serve(large, key(*blocks), tokens)
