"""What a server's time is told as: its queue, its pools, how busy it was; and how ranks under attention DP share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from perilune.rehearse.engine import Engine
from perilune.rehearse.live import Live
from perilune.rehearse.outcome import Outcome, Series
from perilune.rehearse.radix import RadixCache, Snapshots
from perilune.rehearse.replica.door import Balance
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.simulate import simulate
from perilune.rehearse.ticks import SECOND, TOKEN
from rehearse_servers import Times, fleet_of, small_engine

PLAIN = small_engine(overlap=False)


@dataclass(frozen=True)
class Hand(Times):
    """A second a decode step and a millisecond for every KV token; ten milliseconds a prefilled token."""

    def decode(self, local: int, total: int) -> tuple[int, int]:
        return SECOND, SECOND // 1000 // TOKEN

    def chunk(self, local: int, total: int, pairs: int) -> int:
        return local * SECOND // 100


class Still(Hand):
    """The same, KV for nothing."""

    def decode(self, local: int, total: int) -> tuple[int, int]:
        return SECOND, 0


def rehearse(engine: Engine, requests: Sequence[Request], times: Times | None = None) -> Outcome:
    return simulate(Traffic(iter(requests), "by hand"), fleet_of([(engine, times or Still())]), records=True)


def area(series: Series, values: Sequence[float], duration_s: float) -> float:
    """A gauge summed over the run; the last bin may be cut short by its end."""
    return sum(value * min(series.bin_s, duration_s - at * series.bin_s) for at, value in enumerate(values))


def test_the_queue_is_as_long_as_what_was_waited() -> None:
    """One at a time, 1 s of prefill and 4 s of decode each: the second waits 5 s, the third 10 s."""
    found = rehearse(replace(PLAIN, requests=1), [Request(0.0, 100, 5)] * 3)
    assert found.duration_s == 15
    assert sum(found.waits_s.values()) == 15
    assert area(found.series, found.series.queued, 15) == pytest.approx(15)
    assert area(found.series, found.series.running, 15) == pytest.approx(15)
    assert found.replicas[0].busy_share == 1


def test_a_server_is_busy_only_while_it_steps() -> None:
    found = rehearse(PLAIN, [Request(0.0, 100, 2), Request(8.0, 100, 2)])
    assert found.duration_s == 10
    assert found.replicas[0].busy_share == pytest.approx(0.4)
    assert area(found.series, found.series.running, 10) == pytest.approx(4)


def test_kv_in_use_grows_with_what_is_decoded() -> None:
    """Pages of one token: 100 during a prefill of 1 s, then 100 to 300 over 200 s of decode."""
    found = rehearse(small_engine(overlap=False, page=1, page_size=1), [Request(0.0, 100, 201)])
    assert found.duration_s == 201
    assert area(found.series, found.series.kv_used, 201) * 4096 == pytest.approx(100 + 200 * 200, rel=0.01)


def test_slots_in_use_leave_out_states_that_could_be_evicted() -> None:
    """Three slots a request while it runs; what it leaves in the tree counts no more."""
    snapshots = Snapshots.of("extra_buffer", page_size=16, dcp=1, kernel_chunk=16, track_interval=64, overlap=True)
    engine = small_engine(
        overlap=False, slots=8, new_cache=lambda: RadixCache(tokens=4096, page=16, slots=8, snapshots=snapshots)
    )
    found = rehearse(engine, [Request(0.0, 100, 5), Request(20.0, 100, 5)])
    used = found.series.slots_used
    at = [int(instant / found.series.bin_s) for instant in (2.5, 10.0, 22.5)]
    # Its own slot and two to track in, and the state of its prompt, which is locked.
    assert [used[bin_] * 8 for bin_ in at] == pytest.approx([4, 0, 4])


def test_ranks_read_their_kv_side_by_side() -> None:
    """A step takes as long as the mean over the ranks: of 300 and 100 tokens, 0.2 s more and one millisecond."""
    engine = small_engine(overlap=False, ranks=2, chunk=None, max_prefill=4096)
    found = rehearse(engine, [Request(0.0, 300, 2), Request(0.0, 100, 2)], Hand())
    first, second = found.records
    assert first.end_s is not None
    assert first.first_token_s == second.first_token_s == 3
    assert first.end_s - 3 == pytest.approx(1 + (301 + 101) / 2 / 1000)


@pytest.mark.parametrize(
    ("method", "chosen"),
    [
        ("round_robin", [0, 1, 2, 0]),
        ("total_requests", [0, 0, 0, 0]),  # two running, three waiting, one running and two waiting
        ("total_tokens", [2, 2, 2, 2]),
    ],
)
def test_a_rank_is_chosen_as_the_load_balance_method_has_it(method: str, chosen: list[int]) -> None:
    fleet = fleet_of([(small_engine(ranks=3), Still())])
    simulate(Traffic(iter(()), "none"), fleet)
    ranks = fleet.replicas[0].ranks
    for rank, (running, waiting, prompts) in zip(ranks, [(2, 0, 300), (0, 3, 500), (1, 2, 200)], strict=True):
        rank.rows, rank.prompts = running, prompts
        rank.queue.extend(Live(Request(0.0, 100, 1), number, 0) for number in range(waiting))
    balance = Balance(method)
    assert [ranks.index(balance.pick(ranks)) for _ in range(4)] == chosen
