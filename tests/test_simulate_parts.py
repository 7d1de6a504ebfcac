"""Sketches, timelines and stretches of steps against plain arithmetic and numpy."""

from __future__ import annotations

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perilune.rehearse.histogram import Histogram
from perilune.rehearse.replica import chronicle
from perilune.rehearse.replica.clock import first_after, lasts
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.series import BINS, FIRST_WIDTH, Timeline, series
from perilune.rehearse.simulate import simulate
from perilune.rehearse.ticks import SECOND
from rehearse_servers import Times, fleet_of, small_engine

VALUES = {
    "one": [7 * SECOND],
    "zero": [0, 0, 5],
    "pairs, as waves give": [n * SECOND for n in range(1, 9) for _ in range(2)],
    "spread over nine decades": [round(10 ** Random(n).uniform(9, 18)) for n in range(5000)],
    "narrow": [SECOND + Random(n).randrange(SECOND // 100) for n in range(5000)],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_percentiles_are_those_of_numpy_within_a_thousandth(values: list[int]) -> None:
    sketch = Histogram()
    for value in values:
        sketch.add(value)
    found = sketch.distribution()
    true = np.array(values, dtype=float) / SECOND
    assert (found.count, found.max) == (len(values), max(true))
    assert found.mean == pytest.approx(true.mean(), rel=1e-12)
    expected = np.percentile(true, [50, 90, 99])
    assert (found.p50, found.p90, found.p99) == pytest.approx(tuple(expected), rel=1e-3)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_cumulative_curve_rises_to_one_in_few_points(values: list[int]) -> None:
    sketch = Histogram()
    for value in values:
        sketch.add(value)
    curve = sketch.distribution().cdf
    assert len(curve) <= 202
    assert list(curve) == sorted(curve)
    assert curve[-1] == (max(values) / SECOND, 1.0)
    for value, share in curve[:-1]:
        below = sum(one <= value * SECOND * (1 + 1e-3) for one in values) / len(values)
        assert below >= share - 1e-9


@given(st.integers(0, 10**16), st.integers(0, 10**13), st.integers(0, 400), st.integers(0, 5))
def test_a_ramp_is_its_values(first: int, step: int, terms: int, weight: int) -> None:
    ramp, single = Histogram(), Histogram()
    ramp.add_ramp(first, step, terms, weight)
    for n in range(terms):
        if weight:
            single.add(first + n * step, weight)
    assert (ramp._bins, ramp.count, ramp.total, ramp.max) == (single._bins, single.count, single.total, single.max)


def test_merged_sketches_are_one() -> None:
    values = VALUES["narrow"]
    whole, one, other = Histogram(), Histogram(), Histogram()
    for n, value in enumerate(values):
        whole.add(value)
        (one if n % 3 else other).add(value)
    one.merge(other)
    assert one.distribution() == whole.distribution()


@given(st.integers(1, 10**15), st.integers(0, 10**12), st.integers(0, 10**17))
def test_the_first_boundary_after_a_wait(first: int, slope: int, wait: int) -> None:
    steps = first_after(first, slope, wait)
    assert lasts(first, slope, steps) > wait
    assert lasts(first, slope, steps - 1) <= wait


def test_steps_in_a_row_last_the_sum_of_their_times() -> None:
    assert lasts(10, 3, 4) == 10 + 13 + 16 + 19


@given(st.lists(st.tuples(st.integers(0, 10**14), st.integers(0, 10**16), st.integers(0, 9)), max_size=60))
def test_a_timeline_keeps_areas_and_counts_whatever_its_width(told: list[tuple[int, int, int]]) -> None:
    line = Timeline()
    now = area = tokens = 0
    for gap, length, running in told:
        start, now = now + gap, now + gap + length
        line.add(start, now, running, running * length, 2 * running, 0, running, 10 * running)
        area += running * length
        tokens += running
    rows = line.rows(line.width)
    assert len(rows) <= BINS
    assert sum(row[0] for row in rows) == sum(row[1] for row in rows) == area
    assert sum(row[2] for row in rows) == 2 * area
    assert (sum(row[4] for row in rows), sum(row[5] for row in rows)) == (tokens, 10 * tokens)


def test_gauges_are_means_over_the_bins_and_the_last_bin_ends_with_the_run() -> None:
    long, short = Timeline(), Timeline()
    end = 3 * SECOND
    long.add(0, end, 4, 2 * end, 50, 3, 300, 30)
    short.add(0, FIRST_WIDTH, 2, 0, 50, 1, 7, 0)
    found = series([long, short], tokens=200, slots=8, duration=end)
    ticks = long.width
    assert found.bin_s == ticks / SECOND
    assert found.running[0] == pytest.approx(4 + 2 * FIRST_WIDTH / ticks)
    assert found.running[1:] == pytest.approx([4.0] * (len(found.running) - 1))
    assert found.queued == pytest.approx([2.0] * len(found.queued))
    assert found.kv_used[-1] == pytest.approx(0.25)
    assert found.slots_used[-1] == pytest.approx(3 / 8)
    assert (sum(found.prompt_tokens), sum(found.output_tokens)) == (307, 30)


@pytest.mark.parametrize("records", [False, True])
def test_memory_grows_with_requests_served_only_where_they_are_kept(
    records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chronicle, "KEPT", 100)  # stretches, which a longer run would reach
    peaks = []
    for served in (500, 2_000):
        requests = (Request(0.0, 100 + number % 50, 20 + number % 7) for number in range(served))
        fleet = fleet_of([(small_engine(overlap=False), Times())])
        tracemalloc.start()
        try:
            found = simulate(Traffic(requests, "many", concurrency=8), fleet, records=records)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert found.requests.completed == served
    grown = peaks[1] / peaks[0]
    assert grown > 1.5 if records else grown < 1.2
