"""The scheduler's rules, worked out by hand. A decode step takes 1 s; a prefill 1 s for every 100 tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.outcome import Outcome, RequestRecord
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.simulate import simulate
from perilune.rehearse.ticks import SECOND, seconds
from rehearse_servers import Times, fleet_of, small_engine


@dataclass(frozen=True)
class Hand(Times):
    """A second a decode step, and `row_s` more for every request in it; ten milliseconds a prefilled token."""

    row_s: float = 0.0

    def decode(self, local: int, total: int) -> tuple[int, int]:
        return SECOND + round(self.row_s * total * SECOND), 0

    def chunk(self, local: int, total: int, pairs: int) -> int:
        return local * SECOND // 100


def rehearse(
    engine: Engine,
    *requests: tuple[float, int, int],
    concurrency: int | None = None,
    times: Hand | None = None,
    events: list[tuple[float, str, int]] | None = None,
) -> Outcome:
    made = iter([Request(arrival, isl, osl) for arrival, isl, osl in requests])

    def log(now: int, what: str, index: int) -> None:
        if events is not None:
            events.append((seconds(now), what, index))

    return simulate(Traffic(made, "by hand", concurrency), fleet_of([(engine, times or Hand())]), records=True, log=log)


def lives(found: Outcome) -> list[tuple[float | None, float | None]]:
    """First token and end of each request, in seconds."""
    return [(record.first_token_s, record.end_s) for record in found.records]


ONE_BY_ONE = small_engine(overlap=False, page=1, page_size=1)
OVERLAPPED = small_engine(overlap=True, page=1, page_size=1)


@pytest.mark.parametrize("engine", [ONE_BY_ONE, OVERLAPPED], ids=["normal", "overlap"])
def test_a_request_alone_prefills_and_then_decodes_a_token_a_step(engine: Engine) -> None:
    found = rehearse(engine, (0.5, 200, 4))
    assert lives(found) == [(2.5, 5.5)]
    assert (found.ttft_s.p50, found.tpot_s.p50, found.itl_s.p50) == pytest.approx((2.0, 1.0, 1.0), rel=1e-3)
    assert found.itl_s.count == 3


def test_one_token_comes_from_the_prefill_alone() -> None:
    found = rehearse(OVERLAPPED, (0.0, 100, 1))
    assert lives(found) == [(1.0, 1.0)]
    assert found.tpot_s.count == 0


def test_a_long_prompt_is_cut_and_the_next_one_fills_the_last_chunk() -> None:
    # 256 + 256 + 88; the second prompt's 150 tokens fit the 168 that are left of the third pass.
    found = rehearse(ONE_BY_ONE, (0.0, 600, 2), (0.1, 150, 2))
    assert lives(found) == [(7.5, 8.5), (7.5, 8.5)]


def test_a_first_token_is_seen_late_behind_the_launch_of_another_prefill() -> None:
    # The first pass takes 256 tokens, 2.56 s; the other 144, 1.44 s, are launched behind it, and nothing behind them.
    found = rehearse(replace(OVERLAPPED, late=750), (0.0, 200, 3), (0.0, 200, 3))
    assert lives(found) == [(3.64, 6.0), (4.0, 6.0)]
    assert found.itl_s.max == pytest.approx(5.0 - 3.64)
    assert found.itl_s.count == 4


def test_a_request_takes_its_time_to_reach_a_scheduler() -> None:
    traffic = Traffic(iter([Request(1.0, 200, 2), Request(1.0, 100, 1)]), "by hand")
    way = (SECOND // 2, SECOND // 1000)
    found = simulate(traffic, fleet_of([(ONE_BY_ONE, Hand())]), records=True, front_end=way)
    # They arrive at 1 s and reach the server at 1.7 and 1.6 s.
    assert lives(found) == [(4.6, 5.6), (2.6, 2.6)]
    assert [record.arrival_s for record in found.records] == [1.0, 1.0]


def test_prefill_goes_before_decode() -> None:
    # The first has its token at 2 s; then the second's prompt is computed, and both decode together.
    found = rehearse(ONE_BY_ONE, (0.0, 200, 3), (0.5, 200, 3))
    assert lives(found) == [(2.0, 6.0), (4.0, 6.0)]
    assert found.itl_s.max == 3.0


@pytest.mark.parametrize(
    ("engine", "first"),
    [
        (ONE_BY_ONE, 6.0),  # it comes at 4.4, in the step that ends at 5
        (OVERLAPPED, 7.0),  # by then the step that starts at 5 was decided on
    ],
    ids=["normal", "overlap"],
)
def test_with_overlap_an_arrival_waits_one_step_more(engine: Engine, first: float) -> None:
    found = rehearse(engine, (0.0, 200, 20), (4.4, 100, 1))
    assert found.records[1].first_token_s == first


@pytest.mark.parametrize(
    ("engine", "first"),
    [
        (replace(ONE_BY_ONE, requests=1), 7.0),  # the first ends at 6, and its place is free
        (replace(OVERLAPPED, requests=1), 7.0),  # nothing is left to run: no step is decided on
    ],
    ids=["normal", "overlap"],
)
def test_a_place_comes_free_when_a_request_ends(engine: Engine, first: float) -> None:
    found = rehearse(engine, (0.0, 200, 5), (0.0, 100, 1))
    assert found.records[1].first_token_s == first
    assert found.admitted_max == 1
    assert found.waits_s == {"request_limit": 6.0}


def test_with_overlap_a_place_comes_free_one_step_late_beside_others() -> None:
    # The first ends at 3 + 1; the step from 4 to 5 was decided on before, and then the third is prefilled.
    engine = replace(OVERLAPPED, requests=2)
    found = rehearse(engine, (0.0, 100, 2), (0.0, 100, 9), (0.0, 100, 1))
    assert lives(found)[0] == (2.0, 3.0)
    assert lives(found)[2] == (5.0, 5.0)


def test_speculation_steps_by_what_is_accepted_and_ended_requests_ride_along_once() -> None:
    # 9 tokens after the first at 4.5 a step: two steps. The other request's third step has two rows still.
    engine = replace(OVERLAPPED, speculates=True, acceptance=((4500, 1),), reserve=16)
    found = rehearse(engine, (0.0, 100, 10), (0.0, 100, 28), times=Hand(row_s=0.25))
    assert lives(found) == [(2.0, 5.0), (2.0, 10.25)]  # two steps of 1.5, one more, three of 1.25
    assert found.itl_s.count == 2 + 6


@pytest.mark.parametrize(
    ("ends_by", "queue_waits_for"), [("length", "kv_tokens"), ("eos", "kv_tokens")], ids=["length", "eos"]
)
def test_kv_is_promised_for_the_answers_of_running_requests(ends_by: str, queue_waits_for: str) -> None:
    # 1,000 tokens: the first may grow to 500, the second would need 401 + page of what is left.
    engine = small_engine(tokens=1000, page=1, page_size=1, overlap=False, ignore_eos=ends_by == "length")
    found = rehearse(engine, (0.0, 100, 400), (0.0, 200, 400))
    assert found.admitted_max == 1
    assert found.waits_s[queue_waits_for] > 300


@pytest.mark.parametrize(("clip", "together"), [(4096, 1), (100, 2)])
def test_no_more_is_promised_for_an_answer_than_the_estimate_is_clipped_to(clip: int, together: int) -> None:
    """2,100 tokens each do not fit 2,500 together; 200 each (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION) do."""
    engine = small_engine(tokens=2500, page=1, page_size=1, overlap=False, ignore_eos=False, clip=clip)
    found = rehearse(engine, (0.0, 100, 2000), (0.0, 100, 2000))
    assert found.admitted_max == together
    assert found.requests.completed == 2
    assert (found.requests.retracted > 0) == (together == 2)


def test_retraction_sends_back_the_longest_prompt_of_the_shortest_outputs() -> None:
    # Requests that end by themselves are promised a tenth of what they may ask for, and so both are let in.
    engine = small_engine(
        tokens=120,
        page=1,
        page_size=1,
        overlap=False,
        ignore_eos=False,
        ratio=SHARE // 10,
        ratio_min=SHARE // 10,
    )
    events: list[tuple[float, str, int]] = []
    found = rehearse(engine, (0.0, 30, 50), (0.1, 20, 50), events=events)
    # Both decode from 0.5 s on, with 50 tokens and two more a step: the pool is full after 35 steps.
    assert (35.5, "retract", 0) in events
    assert found.requests.retracted == 1
    first, second = found.records
    assert second.end_s == 0.5 + 49
    # The first waits for that. Its prompt is cached still; the 36 tokens it had are computed again, and give the 37th.
    assert first.end_s == pytest.approx(0.5 + 49 + 0.36 + 13)
    assert found.hit_tokens == 0  # what it finds of its own counts for no hit
    assert found.waits_s["kv_tokens"] == pytest.approx(14.0)


REFUSED = [
    ("over the context", (0.0, 4000, 200), "the context"),
    ("over the pool", (0.0, 1000, 1), "the KV pool"),
]


@pytest.mark.parametrize(("request_", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_can_never_be_served_is_refused_at_once(request_: tuple[float, int, int], why: str) -> None:
    found = rehearse(small_engine(tokens=1000, page=1, page_size=1), request_, (0.0, 10, 2))
    assert (found.requests.rejected, found.requests.completed) == (1, 1)
    assert found.records[0].end == "rejected"
    assert any(why in note for note in found.notes)


def test_an_answer_is_cut_to_what_the_pool_holds() -> None:
    # `max_new_tokens_for_memory`: 1,000 tokens less the prompt's pages, a page and one.
    found = rehearse(small_engine(tokens=1000, page=100, page_size=100), (0.0, 250, 4000 - 250))
    assert found.records[0].osl == 1000 - 300 - 100 - 1
    assert found.notes == ("1 answers cut short: the KV pool or the context holds no more.",)


def test_a_prompt_is_cut_to_the_context_where_the_server_may() -> None:
    # `get_worker_info`: the context less one, less five.
    found = rehearse(small_engine(context=100, truncates=True, page=1, page_size=1), (0.0, 250, 50))
    assert (found.records[0].isl, found.records[0].osl, found.requests.rejected) == (94, 4, 0)


def test_a_full_queue_refuses() -> None:
    engine = replace(ONE_BY_ONE, requests=1, max_queued=1)
    found = rehearse(engine, (0.0, 100, 9), (1.5, 100, 9), (1.6, 100, 9))
    assert [record.end for record in found.records] == ["finished", "finished", "rejected"]


def test_attention_dp_ranks_step_together_and_decode_beside_a_prefill() -> None:
    # The second rank's prompt of 200 is a step of 2 s; the first rank decodes one token in it.
    found = rehearse(replace(ONE_BY_ONE, ranks=2), (0.0, 100, 5), (0.5, 200, 2))
    assert lives(found) == [(1.0, 6.0), (3.0, 4.0)]


def test_attention_dp_ranks_do_not_decode_beside_a_prefill_when_they_speculate() -> None:
    engine = replace(ONE_BY_ONE, ranks=2, speculates=True, acceptance=((1000, 1),), reserve=4)
    found = rehearse(engine, (0.0, 100, 5), (0.5, 200, 2))
    assert lives(found) == [(1.0, 7.0), (3.0, 4.0)]


def test_mixed_chunks_decode_in_the_prefill() -> None:
    found = rehearse(replace(ONE_BY_ONE, mixed=True), (0.0, 100, 3), (0.5, 199, 2))
    assert lives(found) == [(1.0, 4.0), (3.0, 4.0)]


def test_pipeline_stages_work_on_chunks_of_one_prompt_one_behind_the_other() -> None:
    # Stages of 256 tokens take 2.56 s. Four chunks follow each other, and the last passes three more stages.
    found = rehearse(replace(ONE_BY_ONE, lanes=4, micro_batch=2), (0.0, 1024, 2))
    first = 7 * 2.56
    assert lives(found) == [(first, first + 4.0)]


def test_pipeline_stages_take_prompts_one_behind_the_other() -> None:
    # A prompt fills a chunk; each comes out three stages after the last one that was behind it went in.
    found = rehearse(replace(ONE_BY_ONE, lanes=4, micro_batch=2), *[(0.0, 256, 1)] * 12)
    assert [end for _, end in lives(found)] == [(number + 4) * 2.56 for number in range(12)]


def test_pipeline_micro_batches_share_the_stages() -> None:
    # Four requests, one a micro-batch: stages of 0.1 s for the prompts, then a token each in a cycle of 4 steps.
    found = rehearse(replace(ONE_BY_ONE, lanes=4, micro_batch=1), *[(0.0, 10, 10)] * 4)
    assert lives(found) == [(0.4, 36.7), (0.5, 36.7), (0.6, 36.7), (0.7, 36.7)]
    assert found.admitted_max == 4


def test_a_closed_loop_keeps_its_number_in_flight() -> None:
    # Waves of four: two prompts of 100 fill a chunk of 256 in part, the third would have to be cut.
    found = rehearse(ONE_BY_ONE, *[(0.0, 128, 11)] * 8, concurrency=4)
    assert found.admitted_max == 4
    assert found.requests.completed == 8
    assert found.duration_s == pytest.approx(2 * (4 * 1.28 + 10))


def test_a_later_turn_comes_after_the_one_before_has_ended() -> None:
    turn = Request(2.5, 100, 1)
    traffic = Traffic(iter([Request(0.0, 100, 2, then=turn)]), "session")
    found = simulate(traffic, fleet_of([(ONE_BY_ONE, Hand())]), records=True)
    assert [record.arrival_s for record in found.records] == [0.0, 2.0 + 2.5]


def test_a_shared_prefix_is_computed_once() -> None:
    blocks = tuple(range(8))
    requests = [Request(arrival, 128, 2, blocks, 16) for arrival in (0.0, 10.0)]
    engine = small_engine(overlap=False)
    found = simulate(Traffic(iter(requests), "twice"), fleet_of([(engine, Hand())]), records=True)
    # At least one token is computed, so that there are logits: the last page is computed again.
    assert [record.cached_tokens for record in found.records] == [0, 112]
    assert found.records[1].first_token_s == pytest.approx(10.16)


def test_the_queue_is_sorted_by_the_schedule_policy() -> None:
    engine = replace(ONE_BY_ONE, requests=1, schedule_policy="lof")
    found = rehearse(engine, (0.0, 100, 2), (0.1, 100, 2), (0.2, 100, 7))
    ends = {record.index: record.end_s for record in found.records}
    assert ends[2] < ends[1]


def test_goodput_counts_requests_that_meet_both_targets() -> None:
    from perilune.rehearse.tally import Targets

    made = iter([Request(0.0, 200, 3), Request(0.5, 200, 3)])
    found = simulate(Traffic(made, "two"), fleet_of([(ONE_BY_ONE, Hand())]), targets=Targets(ttft_s=10.0, tpot_s=1.5))
    assert found.goodput["share"] == 0.5  # the first waits for the second's prompt between its tokens


def _ends(records: tuple[RequestRecord, ...]) -> list[str]:
    return [record.end for record in records]


def test_stopping_early_keeps_what_there_is() -> None:
    made = (Request(0.0, 100, 2000) for _ in range(10_000))
    found = simulate(
        Traffic(made, "long", 4), fleet_of([(ONE_BY_ONE, Hand())]), records=True, stop=lambda: True, one_step=True
    )
    assert found.interrupted
    assert found.requests.unfinished == 4
    assert _ends(found.records) == ["unfinished"] * 4
