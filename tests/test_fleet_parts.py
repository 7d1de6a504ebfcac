"""Lines between servers, outages as they are written, and encoders on servers of their own."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perilune.errors import UnusableInput
from perilune.rehearse.events import Events
from perilune.rehearse.fleet.encoders import EncoderPool, deal
from perilune.rehearse.fleet.link import Link
from perilune.rehearse.fleet.outages import Outage, check_outages, parse_outage
from perilune.rehearse.vision import Tower


def test_a_line_carries_in_turn() -> None:
    line = Link()
    assert [line.carry(10, 5), line.carry(11, 5), line.carry(40, 1)] == [15, 20, 41]
    assert line.busy == 11
    line.carry(41, 100)
    line.cut(51)
    assert line.busy == 21
    assert line.carry(60, 2) == 62


@pytest.mark.parametrize(
    ("text", "outage"),
    [
        ("decode-0@120+1800", Outage("decode-0", 120.0, 1800.0)),
        (" unified-12@0.5+1 ", Outage("unified-12", 0.5, 1.0)),
    ],
)
def test_outages_as_they_are_written(text: str, outage: Outage) -> None:
    assert parse_outage(text) == outage


@pytest.mark.parametrize(
    "text",
    ["", "decode-0", "decode-0@x+1", "decode-0@1", "@1+1", "decode-0@1.2.3+4", "decode-0@-1+5", "d-0@1+" + "9" * 99],
)
def test_what_is_not_an_outage(text: str) -> None:
    with pytest.raises(UnusableInput, match="is not an outage"):
        parse_outage(text)


def test_no_outage_outlasts_a_rehearsal() -> None:
    with pytest.raises(UnusableInput, match="at most 315,360,000 s long"):
        parse_outage("decode-0@1+999999999")


def test_outages_are_put_in_order() -> None:
    late, early = Outage("decode-1", 50, 5), Outage("decode-0", 10, 40)
    assert check_outages([late, early], ["decode-0", "decode-1"]) == (early, late)


@pytest.mark.parametrize(
    ("outages", "message"),
    [
        ([Outage("decode-7", 1, 1)], "The fleet has no decode-7"),
        ([Outage("decode-0", 1, 10), Outage("decode-0", 5, 1)], "while it is still down"),
    ],
)
def test_outages_that_cannot_be(outages: list[Outage], message: str) -> None:
    with pytest.raises(UnusableInput, match=message):
        check_outages(outages, ["decode-0", "prefill-0"])


@given(st.lists(st.integers(1, 99), min_size=1, max_size=20), st.integers(1, 8), st.integers(0, 99))
def test_images_are_dealt_evenly_and_in_order(images: list[int], encoders: int, seed: int) -> None:
    parts = deal(images, encoders, Random(seed))
    assert [image for _, share in parts for image in share] == images
    counts = [len(share) for _, share in parts]
    assert len(counts) == min(len(images), encoders)
    assert max(counts) - min(counts) <= 1
    assert len({encoder for encoder, _ in parts}) == len(parts)


def encoder_pool(events: Events, encoders: int) -> EncoderPool:
    """Encoders that take 10 ticks for a token, and lines that take 1."""
    towers = [Tower(lambda image, graph: 10 * image) for _ in range(encoders)]
    return EncoderPool(towers, lambda tokens: tokens, events, Random(3))


def test_an_encoder_takes_two_parts_in_one_call() -> None:
    events = Events()
    pool = encoder_pool(events, 1)
    seen: list[tuple[str, int]] = []
    for name, image in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        pool.encode([image], 0, lambda now, name=name: seen.append((name, now)))  # type: ignore[misc]
    events.run(99)
    # a alone until 10; b and c until 60; d until 100. Then the line: 1, 2 and 3, 4 ticks.
    assert seen == [("a", 11), ("b", 62), ("c", 65), ("d", 104)]
    assert pool.encoders[0].busy == 100


def test_a_request_goes_on_when_its_last_part_is_there() -> None:
    events = Events()
    pool = encoder_pool(events, 3)
    seen: list[int] = []
    pool.encode([7, 1, 1, 1], 5, seen.append)
    assert sorted(encoder.busy for encoder in pool.encoders) in ([10, 10, 80], [10, 20, 70])
    slowest = max(encoder.busy for encoder in pool.encoders)
    events.run(99)
    assert seen == [5 + slowest + slowest // 10]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.lists(st.integers(1, 9), min_size=1, max_size=6)), max_size=20),
    st.integers(1, 4),
)
def test_every_request_is_encoded_once(arrivals: list[tuple[int, list[int]]], encoders: int) -> None:
    events = Events()
    pool = encoder_pool(events, encoders)
    ended: list[tuple[int, int]] = []
    for index, (arrival, images) in enumerate(arrivals):
        events.at(
            arrival,
            1,
            lambda now, _, images=images, index=index: pool.encode(  # type: ignore[misc]
                images, now, lambda end: ended.append((index, end - now))
            ),
        )
    events.run(10_000)
    assert not events
    assert sorted(index for index, _ in ended) == list(range(len(arrivals)))
    assert sum(encoder.busy for encoder in pool.encoders) == 10 * sum(sum(images) for _, images in arrivals)
    for index, took in ended:
        assert took >= 11 * max(arrivals[index][1])
