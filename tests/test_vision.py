"""Images in front of a prefill: which are encoded, on which rank, with a graph or without, and where pixels wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perilune.rehearse.vision import (
    ALIGNMENT,
    CONTROL_BYTES,
    SLICES,
    FeaturePool,
    Graphs,
    GraphSettings,
    Tower,
    assign,
    pixel_bytes,
    touched,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("images", "ranks", "shares"),
    [
        ([1000, 100, 200, 50], 2, [[1000], [200, 100, 50]]),  # the example in the engine's own documentation
        ([7], 4, [[7], [], [], []]),
        ([5, 5, 5, 5], 2, [[5, 5], [5, 5]]),
        ([], 3, [[], [], []]),
    ],
)
def test_the_largest_image_goes_to_the_rank_with_least(images: list[int], ranks: int, shares: list[list[int]]) -> None:
    assert assign(images, ranks) == shares


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 1000, [0, 1, 2]),
        (0, 150, [0, 1]),  # the second is cut by the chunk's end and encoded with it
        (150, 400, [2]),  # and not again with the rest of it
        (300, 301, [2]),
        (301, 1000, []),
        (600, 900, []),
        (0, 100, [0]),
        (100, 101, [1]),
    ],
)
def test_an_image_is_encoded_with_the_chunk_it_begins_in(start: int, end: int, found: list[int]) -> None:
    assert list(touched((100, 200, 300), start, end)) == found


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=8),
    st.lists(st.integers(1, 1500), min_size=1, max_size=6),
)
def test_chunks_encode_every_image_once(images: list[int], chunks: list[int]) -> None:
    encoded: list[int] = []
    at = 0
    for chunk in [*chunks, sum(images)]:
        encoded += touched(images, at, at + chunk)
        at += chunk
    assert encoded == list(range(len(images)))


def test_a_graph_is_captured_at_the_second_call_of_a_size() -> None:
    graphs = Graphs(GraphSettings())
    assert [graphs.replays((1024,)) for _ in range(3)] == [False, True, True]


def test_above_6144_patches_the_tower_runs_eager() -> None:
    graphs = Graphs(GraphSettings())
    assert [graphs.replays((1536,)) for _ in range(3)] == [False, True, True]  # 6,144 patches
    assert [graphs.replays((1537,)) for _ in range(3)] == [False, False, False]
    assert [graphs.replays((16, 1537)) for _ in range(3)] == [False, False, False]


def test_two_graphs_are_kept_and_sizes_long_unseen_are_forgotten() -> None:
    graphs = Graphs(GraphSettings())
    for size in (100, 200, 300):
        graphs.replays((size,))
    assert [graphs.replays((size,)) for size in (100, 200, 300)] == [True, True, False]
    assert [graphs.replays((300,)) for _ in range(3)] == [False, False, False]
    fresh = Graphs(GraphSettings())
    fresh.replays((1,))
    for size in range(2, 18):  # sixteen others
        fresh.replays((size,))
    assert not fresh.replays((1,))
    assert fresh.replays((1,))


def test_the_slowest_rank_decides() -> None:
    calls: list[tuple[int, bool]] = []

    def encode(image: int, graph: bool) -> int:
        calls.append((image, graph))
        return image if not graph else image // 2

    tower = Tower(encode, ranks=2, graphs=GraphSettings())
    assert tower.forward([1000, 100, 200, 50]) == 1000
    assert tower.forward([1000, 100, 200, 50]) == 500  # both ranks met their set a second time
    assert tower.forward([]) == 0
    assert calls[-4:] == [(1000, True), (200, True), (100, True), (50, True)]
    eager = Tower(encode, ranks=1)
    assert [eager.forward([10, 20]) for _ in range(3)] == [30, 30, 30]


def test_images_that_find_no_gap_go_over_the_cpu() -> None:
    image = 1000  # 2.24 MiB of pixels
    control = SLICES * 9 * CONTROL_BYTES
    pool = FeaturePool(control + 2 * pixel_bytes(image) + 2 * ALIGNMENT, readers=8)
    first, second = pool.lease(image), pool.lease(image)
    assert first is not None
    assert second is not None
    assert pool.lease(image) is None
    assert pool.held == 2
    pool.release([first])
    assert pool.lease(image + 1) is None  # a smaller gap than that
    assert pool.lease(image) is not None
    assert FeaturePool(1, readers=8).lease(1) is None  # no room for the pool's own words


@given(st.lists(st.one_of(st.integers(1, 900), st.just(None)), max_size=60))
def test_gaps_and_leases_add_up_to_the_pool(steps: list[int | None]) -> None:
    pool = FeaturePool(8 * MIB, readers=4)
    whole = pool.free_bytes
    leases: list[tuple[int, int]] = []
    for image in steps:
        if image is None:
            if leases:
                pool.release([leases.pop(0)[0]])
        elif (lease := pool.lease(image)) is not None:
            leases.append((lease, -(-pixel_bytes(image) // ALIGNMENT) * ALIGNMENT))
        assert pool.held == len(leases)
        assert pool.free_bytes == whole - sum(size for _, size in leases)
    pool.release(lease for lease, _ in leases)
    assert pool.lease(whole // pixel_bytes(1) - 1) is not None  # one gap again
