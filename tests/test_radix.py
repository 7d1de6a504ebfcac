"""The radix cache, by hand: what is found, what it takes of both pools, what goes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from perilune.errors import UnusableInput
from perilune.rehearse.radix import Claim, Key, OutOfSlots, RadixCache, Snapshots
from perilune.rehearse.traces import reuse, traffic

CONVERSATION = Path(__file__).parents[1] / "benchmarks" / "data" / "mooncake_conversation_trace.jsonl.gz"
PAGE = 64


def snapshots(strategy: str = "extra_buffer", *, page: int = PAGE, dcp: int = 1, overlap: bool = True) -> Snapshots:
    return Snapshots.of(strategy, page_size=page, dcp=dcp, kernel_chunk=64, track_interval=256, overlap=overlap)


def cache(tokens: int = 100 * PAGE, slots: int | None = 20, **settings: object) -> RadixCache:
    given = {"page": PAGE, "snapshots": snapshots() if slots is not None else None} | settings
    return RadixCache(tokens=tokens, slots=slots, **given)


def paged(tokens: int, page: int = PAGE) -> int:
    return -(-tokens // page) * page


def prefilled(radix: RadixCache, blocks: tuple[int, ...], prompt: int, *ends: int) -> tuple[Claim, int]:
    """A request through its prefill, in chunks that end at `ends` (or one); its claim and what it found."""
    claim = Claim(Key(blocks, PAGE))
    found = at = radix.match(claim, prompt - 1)
    radix.lock(claim)
    assert radix.take_slots([claim])
    for end in (*ends, prompt):
        assert radix.allocate_tokens(paged(end, radix.page) - paged(at, radix.page))
        radix.checkpoint(claim, at, end)
        at = end
    return claim, found


def served(radix: RadixCache, blocks: tuple[int, ...], prompt: int, answer: int = 1) -> int:
    """A request from arrival to its end; what it found."""
    claim, found = prefilled(radix, blocks, prompt)
    length = prompt + answer - 1
    assert radix.allocate_tokens(paged(length, radix.page) - paged(prompt, radix.page))
    radix.finish(claim, found, prompt, length)
    return found


def found(radix: RadixCache, *blocks: int, limit: int = 10_000) -> int:
    return radix.peek(Key(blocks, PAGE), limit)


# What is found


def test_a_prefix_counts_only_up_to_a_state() -> None:
    radix = cache()
    served(radix, (1, 2, 3, 4), 200)  # the state of its one chunk is that after 192 tokens
    assert found(radix, 1, 2, 3, 4) == 192
    assert found(radix, 1, 2, 3, 5) == 192
    assert found(radix, 1, 2, 9) == 0
    assert radix.peek(Key((1, 2, 9), PAGE), 192, states=False) == 128


def test_a_branch_gets_a_state_of_its_own_the_second_time() -> None:
    radix = cache()
    served(radix, (1, 2, 3, 4), 256)
    assert served(radix, (1, 2, 8, 9), 256) == 0  # KV of 128 tokens is there, no state after them
    assert found(radix, 1, 2, 7) == 128  # which the second request left behind, instead of one at its own end
    assert found(radix, 1, 2, 8, 9) == 128
    assert served(radix, (1, 2, 7), 192) == 128


def test_every_chunk_leaves_a_state() -> None:
    radix = cache()
    prefilled(radix, (1, 2, 3, 4, 5, 6), 384, 128, 256)
    assert [found(radix, *range(1, n + 1)) for n in range(1, 7)] == [0, 128, 128, 256, 256, 384]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    radix = cache()
    served(radix, (1, 2), 128)
    assert served(radix, (1, 2), 128) == 0  # 127 tokens may match, which is one page, after which no state is
    plain = cache(slots=None)
    served(plain, (1, 2), 128)
    assert served(plain, (1, 2), 128) == 64


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (50, 192),  # the prompt's own state
        (64, 192),  # 255 tokens of KV: the last token generated has none
        (65, 256),
        (400, 512),
    ],
)
def test_decode_leaves_its_state_at_the_interval(answer: int, kept: int) -> None:
    radix = cache()
    served(radix, tuple(range(1, 11)), 192, answer)
    assert found(radix, *range(1, 11)) == kept


def test_without_buffers_the_state_is_that_of_the_end_at_any_length() -> None:
    radix = cache(page=1, snapshots=snapshots("no_buffer", page=1, overlap=False))
    served(radix, (1, 2, 3), 100, 51)
    assert found(radix, 1, 2, 3) == 150
    assert found(radix, 1, 2, 3, limit=149) == 100  # the state of the prompt's end
    assert found(radix, 1, 2, 3, limit=99) == 0
    assert served(radix, (1, 2, 3), 151) == 150


def test_under_dcp_states_lie_on_the_wide_page() -> None:
    wide = Snapshots.of("extra_buffer", page_size=64, dcp=4, kernel_chunk=64, track_interval=256, overlap=True)
    assert (wide.grid, wide.interval) == (256, 256)
    radix = cache(page=256, tokens=100 * 256, snapshots=wide)
    prefilled(radix, tuple(range(1, 11)), 600)
    assert found(radix, *range(1, 11)) == 512
    assert wide.of_chunk(512, 600, 0) == 0
    assert wide.of_chunk(32, 600, 0) == 0  # 512 is no whole number of kernel chunks after 32


def test_a_prompt_without_ids_is_like_no_other_and_takes_one_node() -> None:
    radix = cache(tokens=1 << 20)
    one, two = Claim(Key()), Claim(Key())
    for claim in (one, two):
        assert radix.match(claim, 99_999) == 0
        radix.lock(claim)
        assert radix.take_slots([claim])
        assert radix.allocate_tokens(paged(100_000))
        radix.checkpoint(claim, 0, 100_000)
        assert claim.node.start == 0
    assert radix.peek(one.key, 1 << 20) == 99_968
    assert radix.peek(Key(), 1 << 20) == 0


def test_blocks_larger_than_pages_and_smaller_ones_count_to_the_page() -> None:
    large = cache(slots=None)
    key = Key((1, 2), 512)
    claim = Claim(key)
    large.match(claim, 700)
    large.lock(claim)
    large.allocate_tokens(paged(700))
    large.checkpoint(claim, 0, 700)
    assert large.peek(Key((1, 2), 512), 650) == 640
    assert large.peek(Key((1, 3), 512), 650) == 512
    small = cache(slots=None)
    claim = Claim(Key((1, 2, 3, 4, 5, 6, 7), 16))
    small.match(claim, 112)
    small.lock(claim)
    small.allocate_tokens(128)
    small.checkpoint(claim, 0, 112)
    assert small.peek(Key((1, 2, 3, 4, 5, 6, 7), 16), 112) == 64
    assert small.peek(Key((1, 2, 3, 5), 16), 64) == 0


def test_two_block_sizes_cannot_be_compared() -> None:
    radix = cache()
    radix.match(Claim(Key((1,), 64)), 64)
    radix.match(Claim(Key()), 64)
    with pytest.raises(UnusableInput, match="blocks of 64"):
        radix.match(Claim(Key((1,), 16)), 64)


def test_a_disabled_cache_keeps_nothing_and_one_slot_a_request() -> None:
    radix = cache(disabled=True)
    assert radix.slots_per_request == 1
    served(radix, (1, 2, 3), 192, 300)
    assert found(radix, 1, 2, 3) == 0
    assert (radix.tokens_free, radix.slots_free) == (radix.tokens, radix.slots)


def test_the_whole_conversation_trace_is_found_as_an_unlimited_cache_finds_it() -> None:
    radix = RadixCache(tokens=1 << 40, page=1)
    hits = prompts = 0
    requests = list(traffic(CONVERSATION).requests)
    for request in requests:
        claim = Claim(Key(request.blocks, request.block_tokens))
        hits += radix.match(claim, request.isl)
        prompts += request.isl
        radix.lock(claim)
        assert radix.allocate_tokens(request.isl - claim.cached)
        radix.finish(claim, claim.cached, request.isl, request.isl)
    assert hits == reuse(requests).hit_tokens
    assert round(100 * hits / prompts, 1) == 37.4  # published with the trace's statistics
    assert radix.tokens_cached == radix.tokens_evictable == radix.tokens - radix.tokens_free


# What it takes


@pytest.mark.parametrize(
    ("strategy", "page", "overlap", "slots"),
    [
        ("extra_buffer", 64, True, 3),
        ("extra_buffer", 64, False, 2),
        ("extra_buffer_lazy", 64, True, 2),
        ("no_buffer", 1, False, 1),
    ],
)
def test_slots_of_a_running_request(strategy: str, page: int, overlap: bool, slots: int) -> None:
    radix = cache(page=page, snapshots=snapshots(strategy, page=page, overlap=overlap))
    assert radix.slots_per_request == slots
    claim, _ = prefilled(radix, (1, 2, 3), 192)
    assert radix.slots_free == 20 - slots - 1  # and the state it left in the tree
    assert radix.slots_evictable == 0  # which it has locked
    radix.retract(claim, 192)
    assert (radix.slots_free, radix.slots_evictable) == (19, 1)
    assert (radix.tokens_free, radix.tokens_evictable) == (radix.tokens - 192, 192)


def test_the_slot_to_copy_a_state_into_is_taken_by_the_match() -> None:
    radix = cache(slots=4)
    served(radix, (1, 2), 128, 2)
    claim = Claim(Key((1, 2, 3), PAGE))
    assert radix.match(claim, 191) == 128
    assert (claim.slots, radix.slots_free) == (1, 2)
    radix.unmatch(claim)
    assert radix.slots_free == 3


def test_the_state_that_is_matched_is_not_the_one_to_go() -> None:
    radix = cache(slots=4)
    served(radix, (1, 2), 128, 2)
    other = Claim(Key((7,), PAGE))
    radix.match(other, 63)
    assert radix.take_slots([other])
    with pytest.raises(OutOfSlots):
        radix.match(Claim(Key((1, 2, 3), PAGE)), 191)
    assert found(radix, 1, 2) == 128


def test_what_two_requests_compute_alike_is_kept_once() -> None:
    radix = cache()
    claims = []
    for _ in range(2):
        claim = Claim(Key((1, 2, 3), PAGE))
        assert radix.match(claim, 191) == 0
        radix.lock(claim)
        assert radix.take_slots([claim])
        assert radix.allocate_tokens(192)
        claims.append(claim)
    assert radix.tokens_free == radix.tokens - 384
    for claim in claims:
        radix.checkpoint(claim, 0, 192)
    assert radix.tokens_free == radix.tokens - 192
    assert radix.slots_free == 20 - 2 * 3 - 1


def test_skipping_the_decode_lock_leaves_the_state_evictable_and_its_tokens_not() -> None:
    radix = cache(skip_decode_lock=True)
    claim, _ = prefilled(radix, (1, 2, 3), 192)
    assert (radix.slots_evictable, radix.tokens_evictable) == (1, 0)
    assert radix.evict_states(17)
    assert (radix.slots_free, radix.tokens_evictable, radix.tokens_cached) == (17, 0, 192)
    assert found(radix, 1, 2, 3) == 0
    radix.finish(claim, 0, 192, 192)
    assert radix.tokens_evictable == 192


def test_the_lazy_buffer_lets_go_of_the_matched_state_before_it_evicts() -> None:
    lazy = cache(slots=3, snapshots=snapshots("extra_buffer_lazy"))
    eager = cache(slots=4)
    for radix in (lazy, eager):
        served(radix, (1, 2), 128)
    _, at = prefilled(lazy, (1, 2, 3), 192)
    assert at == 128
    assert found(lazy, 1, 2) == 0  # its state was the only one to evict
    with pytest.raises(OutOfSlots, match="4 state slots"):
        prefilled(eager, (1, 2, 3), 192)


# What goes first


def test_tokens_are_evicted_leaf_by_leaf_from_the_least_recently_used() -> None:
    radix = cache(slots=None)
    for blocks in ((1, 2), (3, 4), (5, 6)):
        served(radix, blocks, 128, 2)
    radix.touch(Key((1, 2), PAGE), 128)
    radix.evict_tokens(radix.tokens_free + 64)
    assert [found(radix, *blocks) for blocks in ((1, 2), (3, 4), (5, 6))] == [128, 0, 128]
    assert radix.evict_tokens(radix.tokens)
    assert not radix.evict_tokens(radix.tokens + 1)


def test_a_locked_path_stays() -> None:
    radix = cache(slots=None)
    claim, _ = prefilled(radix, (1, 2, 3), 192)
    served(radix, (1, 2, 4), 192, 2)
    assert not radix.evict_tokens(radix.tokens)
    assert (found(radix, 1, 2, 3), found(radix, 1, 2, 4)) == (192, 128)
    radix.retract(claim, 192)
    assert radix.evict_tokens(radix.tokens)


def test_evicting_a_state_inside_the_tree_keeps_its_tokens() -> None:
    radix = cache()
    prefilled_claim, _ = prefilled(radix, (1, 2, 3, 4), 256, 128)
    radix.retract(prefilled_claim, 256)
    assert found(radix, 1, 2) == 128
    assert radix.evict_states(19)  # the state after 128 tokens is the older one
    assert (found(radix, 1, 2), found(radix, 1, 2, 3, 4)) == (0, 256)
    assert radix.tokens_cached == 256
    assert radix.evict_states(20)  # now a leaf's: its tokens go too, those above stay
    assert radix.tokens_cached == 128


def test_a_match_makes_only_the_state_it_uses_younger() -> None:
    radix = cache()
    for blocks in ((1, 2, 3, 4), (5, 6)):
        claim, _ = prefilled(radix, blocks, 64 * len(blocks), 64)
        radix.retract(claim, 64 * len(blocks))
    assert radix.touch(Key((1, 2, 3, 4), PAGE), 256) == 256
    assert radix.evict_states(radix.slots_free + 2)
    assert [found(radix, *blocks) for blocks in ((1,), (5,), (1, 2, 3, 4), (5, 6))] == [0, 0, 256, 128]


def test_states_beyond_the_limit_of_a_path_go_from_the_shallow_end() -> None:
    radix = cache(max_states_per_path=2)
    prefilled(radix, (1, 2, 3, 4), 256, 64, 128, 192)
    assert [found(radix, *range(1, n + 1)) for n in range(1, 5)] == [0, 0, 192, 256]


@pytest.mark.parametrize(
    ("policy", "config", "left"),
    [
        ("lru", None, (0, 128, 128)),
        ("lfu", None, (128, 0, 128)),  # the first was inserted by two
        ("slru", None, (128, 0, 128)),
        ("tlru", {"threshold": 4096}, (0, 128, 128)),  # all of them safe to lose: as lru
    ],
)
def test_eviction_policies(policy: str, config: dict[str, int] | None, left: tuple[int, ...]) -> None:
    radix = cache(slots=None, policy=policy, policy_config=config)
    for blocks in ((1, 2), (1, 2), (3, 4), (5, 6)):
        served(radix, blocks, 128, 2)
    radix.evict_tokens(radix.tokens_free + 128)
    assert tuple(found(radix, *blocks) for blocks in ((1, 2), (3, 4), (5, 6))) == left


def test_under_priority_answers_go_before_prompts() -> None:
    radix = cache(slots=None, policy="priority")
    served(radix, (1, 2, 3, 4), 128, 130)
    served(radix, (5, 6), 128, 2)
    radix.evict_tokens(radix.tokens_free + 256)
    assert (found(radix, 1, 2, 3, 4), found(radix, 5, 6)) == (128, 0)  # though the latter is younger


def test_a_policy_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="fastest"):
        cache(policy="fastest")
