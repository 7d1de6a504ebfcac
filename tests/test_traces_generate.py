"""Described traffic: what is drawn, how it arrives, and that a seed repeats it."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable

import pytest

from perilune.errors import UnusableInput
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.traces import (
    Conversation,
    Lengths,
    bursty,
    closed_loop,
    image_tokens,
    num_prompts,
    poisson,
    reuse,
    sessions,
)
from perilune.rehearse.traces.turns import turns

FIXED = Lengths(isl=8192, osl=1024)
TALK = Conversation(turns=4, system_tokens=4096, turn_tokens=100, osl=60, think_s=5.0, systems=2)


def gaps(traffic: Traffic) -> list[float]:
    return [later - sooner for sooner, later in itertools.pairwise(each.arrival_s for each in traffic.requests)]


@pytest.mark.parametrize(
    ("concurrency", "prompts"),
    [(1, 16), (16, 80), (64, 320), (256, 1280), (1024, 5120), (2, 200), (100, 200), (128, 256), (2048, 4096)],
)
def test_a_closed_loop_has_the_prompts_of_the_published_runs(concurrency: int, prompts: int) -> None:
    found = closed_loop(FIXED, concurrency)
    requests = list(found.requests)
    assert (num_prompts(concurrency), len(requests), found.total, found.concurrency) == (
        prompts,
        prompts,
        prompts,
        concurrency,
    )
    assert {(each.isl, each.osl) for each in requests} == {(8192, 1024)}


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.9])
def test_lengths_are_drawn_between_a_share_of_the_most_and_the_most(ratio: float) -> None:
    drawn = list(closed_loop(Lengths(isl=1000, osl=40, range_ratio=ratio), 8, 20_000, seed=1).requests)
    for most, values in ((1000, [each.isl for each in drawn]), (40, [each.osl for each in drawn])):
        least = max(int(most * ratio), 1)
        assert (min(values), max(values)) == (pytest.approx(least, abs=2), most)
        assert statistics.mean(values) == pytest.approx((least + most) / 2, rel=0.02)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_variation_asked_for(cv: float) -> None:
    found = gaps(bursty(FIXED, 4.0, cv, 40_000, seed=2))
    assert statistics.mean(found) == pytest.approx(0.25, rel=0.05)
    assert statistics.pstdev(found) / statistics.mean(found) == pytest.approx(cv, abs=0.05 * max(cv, 0.1))


def test_a_variation_of_one_is_poisson() -> None:
    assert gaps(bursty(FIXED, 4.0, 1.0, 50, seed=3)) == gaps(poisson(FIXED, 4.0, 50, seed=3))


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: closed_loop(Lengths(isl=500, osl=50, range_ratio=0.1), 16, seed=seed),
        lambda seed: poisson(FIXED, 2.0, 100, seed=seed),
        lambda seed: bursty(FIXED, 2.0, 2.0, 100, seed=seed),
        lambda seed: sessions(TALK, 20, rate=0.5, seed=seed),
    ],
)
def test_a_seed_repeats(make: Callable[[int], Traffic]) -> None:
    def drawn(seed: int) -> list[tuple[float, int, int, tuple[int, ...]]]:
        every = itertools.chain.from_iterable(turns(head) for head in make(seed).requests)
        return [(each.arrival_s, each.isl, each.osl, each.blocks) for each in every]

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_conversation_grows_and_repeats_itself() -> None:
    (head,) = sessions(TALK, 1, concurrency=1).requests
    found = list(turns(head))
    assert [each.isl for each in found] == [4196, 4356, 4516, 4676]
    for before, after in itertools.pairwise(found):
        assert after.blocks[: len(before.blocks)] == before.blocks
        assert len(before.blocks) == (before.isl + before.osl) // 16
    assert found[0].arrival_s == 0 < min(each.arrival_s for each in found[1:])


def test_sessions_share_the_system_prompt_and_nothing_else() -> None:
    heads = list(sessions(TALK, 50, rate=1.0, seed=4).requests)
    firsts = {each.blocks[:256] for each in heads}
    assert len(firsts) == 2
    assert len({each.blocks[256] for each in heads}) == 50
    assert reuse([Request(0.0, each.isl, each.osl, each.blocks, 16) for each in heads]).hit_tokens == 48 * 4096
    think = [each.arrival_s for head in heads for each in list(turns(head))[1:]]
    assert statistics.mean(think) == pytest.approx(5.0, rel=0.2)


# Counted by SGLang 0.5.23's own navit_resize_config with Kimi-K3's limits.
@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1, 1, 1),
        (14, 28, 1),
        (28, 28, 1),
        (29, 57, 6),
        (640, 360, 299),
        (1280, 720, 1196),
        (1920, 1080, 2691),
        (1024, 1024, 1369),
        (3840, 2160, 10764),
        (8000, 6000, 16428),
        (7168, 7168, 16384),
        (20000, 100, 512),
        (100, 99999, 256),
        (4000, 3000, 15444),
    ],
)
def test_image_tokens_are_the_engines(width: int, height: int, tokens: int) -> None:
    assert image_tokens(width, height) == tokens


def test_images_add_to_the_prompt() -> None:
    lengths = Lengths(isl=100, osl=10, images=2, image_size=(1920, 1080))
    found = next(closed_loop(lengths, 1).requests)
    assert (found.isl, found.images) == (100 + 2 * 2691, (2691, 2691))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Lengths(isl=0, osl=1), "isl: It must be 1 to 1e+08, not 0."),
        (lambda: Lengths(isl=1, osl=1, range_ratio=1.5), "random-range-ratio: It must be 0 to 1, not 1.5."),
        (lambda: poisson(FIXED, 0.0, 5), "rate: It must be 1e-09 to 1e+06, not 0."),
        (lambda: poisson(FIXED, float("nan"), 5), "rate: It must be"),
        (lambda: bursty(FIXED, 1.0, -1.0, 5), "coefficient of variation: It must be 0 to 100, not -1."),
        (lambda: poisson(FIXED, 1.0, 0), "requests: It must be 1 to 1e+09, not 0."),
        (lambda: closed_loop(FIXED, 0), "concurrency: It must be 1 to 1e+09, not 0."),
        (lambda: sessions(TALK, 5), "sessions: Sessions start at a rate or in a closed loop: give one of the two."),
        (lambda: image_tokens(0, 5), "image 0x5: An image is 1 to 100,000 pixels wide and high."),
    ],
)
def test_what_cannot_be_described(make: Callable[[], object], told: str) -> None:
    with pytest.raises(UnusableInput) as caught:
        make()
    assert told in str(caught.value)
