"""Fleets by hand: what a request goes through between its router and its last token, to the tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet_table import MS, PAGE, US, TableCosts, pd_fleet, run, server
from perilune.rehearse.fleet.encoders import EncoderSettings
from perilune.rehearse.fleet.flags import RouterSettings
from perilune.rehearse.fleet.front import Front
from perilune.rehearse.fleet.outages import Outage
from perilune.rehearse.fleet.room import DecodeSettings
from perilune.rehearse.fleet.routed import RoutedFleet
from perilune.rehearse.hicache import HostedCache, HostSettings, new_store
from perilune.rehearse.images import ImageSettings
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.request import Request
from perilune.rehearse.ticks import SECOND
from perilune.rehearse.vision import GraphSettings

Event = tuple[int, str, int]

ROUND_ROBIN = RouterSettings("round_robin", "round_robin")


def told(requests: Sequence[Request], fleet: Front, **given: Any) -> tuple[Outcome, list[Event]]:
    log: list[Event] = []
    found = run(requests, fleet, log=lambda now, what, index: log.append((now, what, index)), **given)
    return found, log


def when(log: list[Event], what: str, index: int = 0) -> int:
    return next(now for now, kind, one in log if (kind, one) == (what, index))


def decode_step(kv: int, local: int = 1) -> int:
    base, per_milli = TableCosts().decode(local, local)
    return base + per_milli * kv * 1000


# Pairs

CHUNK_512 = MS + 512 * 10 * US
CHUNK_488 = MS + 488 * 10 * US
SENT_488 = 100 * US + 488 * US


def test_a_request_through_a_pair() -> None:
    """Decode has room at once, two chunks are computed, the first is sent meanwhile; the token goes out on landing."""
    found, log = told([Request(0.0, 1000, 3)], pd_fleet())
    landed = CHUNK_512 + CHUNK_488 + SENT_488
    assert when(log, "first") == landed
    assert when(log, "finish") == landed + decode_step(1001) + decode_step(1002)
    assert found.waits_s == {"transfer": SENT_488 / SECOND}


def test_with_prefill_complete_everything_is_sent_at_the_end() -> None:
    _, log = told([Request(0.0, 1000, 3)], pd_fleet(allocation="prefill_complete"))
    assert when(log, "first") == CHUNK_512 + CHUNK_488 + 1000 * US + 100 * US


def test_a_line_carries_one_prompt_after_the_other() -> None:
    """Two prefill servers are done at once; the line of the decode server has to carry both."""
    fleet = pd_fleet(2, 1, router=ROUND_ROBIN)
    _, log = told([Request(0.0, 500, 9), Request(0.0, 500, 9)], fleet)
    computed = MS + 500 * 10 * US
    carries = 600 * US
    assert when(log, "first", 0) == computed + carries
    # The first is decoding when the second lands, which joins after that step.
    assert when(log, "first", 1) == computed + carries + decode_step(501)
    assert fleet.carried == {"prefill-0": carries, "prefill-1": carries, "decode-0": 2 * carries}


def test_prefill_waits_for_room_on_decode() -> None:
    """Decode has rows for two: the third is not even prefilled before one of them has ended."""
    fleet = pd_fleet(1, 1, settings=DecodeSettings(extra_slots=1, reserved_tokens=64), of_decode={"requests": 1})
    found, log = told([Request(0.0, 128, 5)] * 3, fleet, spans=True)
    ended = when(log, "finish", 0)
    assert when(log, "first", 1) >= ended  # only one runs at a time, though its KV was there
    assert when(log, "first", 2) >= when(log, "finish", 1)
    prefills = [span for span in found.replicas[0].spans if span.what == "prefill"]
    assert prefills[-1].start_s >= ended / SECOND
    assert found.admitted_max == 1
    assert found.waits_s["request_limit"] > 0


def test_who_waits_for_a_seat_does_not_wait_for_the_transfer() -> None:
    """Two lie ready while eight run; when these end together there are seats enough, which changes no cause."""
    settings = DecodeSettings(extra_slots=2, reserved_tokens=64)
    fleet = pd_fleet(1, 1, settings=settings, of_decode={"requests": 8}, of_prefill={"requests": 64})
    waits = run([Request(0.0, 64, 2000)] * 24, fleet).waits_s
    assert waits["transfer"] < 0.01 * waits["request_limit"]


def test_room_that_is_set_apart_is_no_running_request() -> None:
    """Six may be under way to a decode server that runs two at once."""
    fleet = pd_fleet(1, 1, settings=DecodeSettings(extra_slots=4, reserved_tokens=64), of_decode={"requests": 2})
    found = run([Request(0.0, 128, 400)] * 12, fleet)
    (decode,) = (one for one in found.replicas if one.role == "decode")
    assert found.admitted_max == 2
    assert 1.9 < max(decode.series.running) <= 2


@pytest.mark.parametrize(("reserved", "together"), [(0, 8), (64, 4), (192, 2)])
def test_reserved_tokens_keep_requests_out(reserved: int, together: int) -> None:
    """16 pages of 64 tokens; each request needs one page and the reserve, and the reserve of those before it."""
    fleet = pd_fleet(
        1,
        1,
        settings=DecodeSettings(extra_slots=64, reserved_tokens=reserved),
        of_decode={"requests": 64, "tokens": 16 * PAGE},
        of_prefill={"requests": 64, "tokens": 400 * PAGE, "chunk": 8192, "max_prefill": 8192},
    )
    requests = [Request(0.0, 64, 64)] * 40
    run(requests, fleet)
    most = fleet.replicas[1].admitted_max
    assert together <= most <= 16
    if reserved:
        assert most * (64 + reserved) <= 16 * PAGE + 64 * reserved


def test_an_overloaded_pair_runs_what_the_decode_server_admits() -> None:
    fleet = pd_fleet(4, 2, of_prefill={"tokens": 400 * PAGE}, of_decode={"tokens": 400 * PAGE})
    found = run([Request(0.0, 256, 200)] * 120, fleet, concurrency=60)
    assert found.admitted_max == 2 * 8
    assert [replica.admitted_max for replica in found.replicas[4:]] == [8, 8]


def test_a_retracted_request_comes_back_with_its_kv() -> None:
    """Twelve pages hold six prompts but not their answers; what is retracted is loaded, not computed again."""
    kept = pd_fleet(
        2,
        1,
        settings=DecodeSettings(extra_slots=8, reserved_tokens=0),
        of_decode={"tokens": 12 * PAGE},
    )
    requests = [Request(0.0, 64, 120)] * 6
    found = run(requests, kept)
    assert found.requests.retracted > 0
    assert found.requests.completed == 6
    assert sum(found.replicas[0].series.prompt_tokens) + sum(found.replicas[1].series.prompt_tokens) == 6 * 64
    lost = pd_fleet(
        2,
        1,
        settings=DecodeSettings(extra_slots=8, reserved_tokens=0, backup=False),
        of_decode={"tokens": 12 * PAGE},
    )
    gone = run(requests, lost)
    assert gone.requests.retracted == 0
    assert gone.requests.rejected > 0
    assert "refused: retracted, and the decode server keeps no backup of their KV." in " ".join(gone.notes)


def test_a_prompt_goes_into_the_prefill_cache_when_it_is_sent() -> None:
    blocks = (1, 2, 3, 4)
    requests = [Request(0.0, 256, 2, blocks, PAGE), Request(1.0, 300, 2, (*blocks, 9), PAGE)]
    found = run(requests, pd_fleet())
    assert found.hit_tokens == 256


# Failures


def test_a_lost_server_gives_its_requests_to_another() -> None:
    fleet = RoutedFleet([server()] * 2, router=ROUND_ROBIN, outages=[Outage("unified-0", 0.02, 5.0)])
    found, log = told([Request(0.0, 500, 20), Request(0.0, 500, 20)], fleet, records=True)
    assert found.requests.completed == 2
    assert {record.replica for record in found.records} == {"unified-1"}
    assert when(log, "finish", 0) > when(log, "finish", 1)
    assert [span.what for span in found.replicas[0].spans if span.what == "down"] == ["down"]


@pytest.mark.parametrize(("lost", "completed"), [("resubmit", 2), ("router", 1), ("fail", 0)])
def test_what_becomes_of_the_requests_of_a_lost_server(lost: Any, completed: int) -> None:
    """At 50 ms the first has tokens; the second has none, as the first prompt went ahead of it."""
    fleet = RoutedFleet([server(requests=1)], outages=[Outage("unified-0", 0.05, 1.0)], lost=lost)
    found = run([Request(0.0, 500, 20), Request(0.0, 500, 20)], fleet)
    assert (found.requests.completed, found.requests.rejected) == (completed, 2 - completed)
    if lost == "resubmit":
        assert found.waits_s["no_server"] == 2.0
    if lost == "router":
        assert found.waits_s["no_server"] == 0.95  # after a back-off of 50 ms


TIMES = [0.001, 0.0061, 0.0121, 0.0125, 0.03]
"""While either chunk is computed, on the way, while decoding."""


@pytest.mark.parametrize("at", TIMES)
def test_a_prefill_server_may_fail_at_any_time(at: float) -> None:
    """The request starts over on another, unless decode has all it needs."""
    _, log = told([Request(0.0, 1000, 4)], pd_fleet(2, 2, outages=[Outage("prefill-0", at, 0.5)]))
    _, alone = told([Request(0.0, 1000, 4)], pd_fleet())
    landed = when(alone, "first") / SECOND < at
    assert when(log, "finish") == when(alone, "finish") + (0 if landed else round(at * SECOND))
    assert [what for _, what, _ in log].count("finish") == 1


@pytest.mark.parametrize(
    ("at", "first"),
    [
        # The prefill server goes on with what it has begun; what it computed of the prompt is in its cache then.
        (0.001, CHUNK_512 + CHUNK_488 + CHUNK_488),
        (0.0061, CHUNK_512 + CHUNK_488 + CHUNK_488),
        # All of the prompt but its last page is, so that one chunk of 40 tokens is left.
        (0.0121, 12_100 * US + MS + 40 * 10 * US),
        (0.03, 30_000 * US + MS + 40 * 10 * US),
    ],
)
def test_a_decode_server_may_fail_at_any_time(at: float, first: int) -> None:
    _, log = told([Request(0.0, 1000, 4)], pd_fleet(2, 2, outages=[Outage("decode-0", at, 0.5)]))
    last = [now for now, what, _ in log if what == "first"][-1]
    assert last == first + 1000 * US + 100 * US
    assert when(log, "finish") == last + sum(decode_step(1000 + done) for done in (1, 2, 3))


# Images


def test_images_are_encoded_in_front_of_their_chunk() -> None:
    images = ImageSettings(host_bytes_per_s=1e12, pool_bytes=1 << 30)
    fleet = RoutedFleet([replace(server(), images=images)])
    _, log = told([Request(0.0, 1000, 1, images=(300, 300))], fleet)
    # Both begin in the first chunk of 512 tokens: 6 ms at 10 us a token.
    assert when(log, "first") == CHUNK_512 + 6 * MS + CHUNK_488


def test_pixels_that_go_over_the_cpu_take_their_time() -> None:
    images = ImageSettings(host_bytes_per_s=705_600_000.0)  # 300 tokens, 1,200 patches of 588 bytes: 1 ms
    _, log = told([Request(0.0, 400, 1, images=(300,))], RoutedFleet([replace(server(), images=images)]))
    assert when(log, "first") == MS + 400 * 10 * US + 3 * MS + MS


def test_images_that_find_the_pool_full_are_told_of() -> None:
    """One reader's words in 4,096 slices, and room for one of the two images."""
    images = ImageSettings(host_bytes_per_s=705_600_000.0, pool_bytes=4096 * 2 * 4 + 705_792)
    found, log = told([Request(0.0, 1000, 1, images=(300, 300))], RoutedFleet([replace(server(), images=images)]))
    assert when(log, "first") == CHUNK_512 + 6 * MS + MS + CHUNK_488
    assert found.notes == ("1 images found the feature pool (SGLANG_MM_FEATURE_CACHE_MB) full and went over the CPU.",)


def test_a_size_that_comes_again_replays_a_graph() -> None:
    images = ImageSettings(host_bytes_per_s=1e12, pool_bytes=1 << 30, graphs=GraphSettings())
    fleet = RoutedFleet([replace(server(), images=images)])
    _, log = told([Request(float(at), 400, 1, images=(300,)) for at in range(3)], fleet)
    took = [when(log, "first", index) - index * SECOND for index in range(3)]
    prompt = MS + 400 * 10 * US
    assert took == [prompt + 3 * MS, prompt + 1500 * US, prompt + 1500 * US]


def test_images_go_to_encoders_first() -> None:
    encoders = EncoderSettings(
        servers=2, encode=lambda tokens, graph: tokens * 10 * US, send=lambda tokens: tokens * US
    )
    requests = [Request(0.0, 400, 1, images=(300, 200)), Request(0.0, 400, 1)]
    found, log = told(requests, RoutedFleet([server()], encoders=encoders))
    prompt = MS + 400 * 10 * US
    assert when(log, "first", 1) == prompt  # the one without images does not wait
    encoded = 3300 * US  # the larger of its two parts, and its way
    assert when(log, "first", 0) == prompt + prompt  # it came while the other was being computed
    assert found.waits_s["encoder"] == encoded / SECOND


# HiCache


def hosted(costs: TableCosts | None = None, **of: Any) -> tuple[RoutedFleet, HostSettings]:
    settings = HostSettings(400 * PAGE, 0, "write_through", **of)
    store = new_store(PAGE, states=False) if settings.storage else None
    base = server(tokens=20 * PAGE)

    def new_cache() -> HostedCache:
        return HostedCache(host=settings, store=store, tokens=20 * PAGE, page=PAGE)

    engine = replace(base.engine, new_cache=new_cache)
    one = replace(base, engine=engine, host=settings, costs=costs or base.costs)
    return RoutedFleet([one] * (2 if settings.storage else 1), router=ROUND_ROBIN), settings


def test_a_prefix_from_the_host_hides_behind_the_forward_or_not() -> None:
    """The second prompt evicts the first, which then comes back from the host: 2 us a token against 1 ms and 10 us."""
    first, other = tuple(range(8)), tuple(range(100, 118))
    requests = [
        Request(0.0, 513, 1, first, PAGE),
        Request(1.0, 1100, 1, other, PAGE),
        Request(2.0, 513, 1, first, PAGE),
        Request(3.0, 1100, 1, other, PAGE),
        Request(4.0, 600, 1, first, PAGE),
    ]
    found, log = told(requests, hosted()[0])
    assert found.hit_tokens == 512 + 1088 + 512
    # The first chunk of the longer prompt, 512 tokens, stays on the device.
    assert found.notes == ("1,600 prompt tokens came from host memory (HiCache L2), and not from the device's cache.",)
    assert when(log, "first", 2) - 2 * SECOND == 1024 * US  # the load is longer than the chunk of one token
    assert when(log, "first", 4) - 4 * SECOND == MS + 88 * 10 * US  # and shorter than that of 88


def test_another_replica_finds_the_prefix_in_the_store() -> None:
    """Round robin sends the second to a server that never saw the prompt: 20 us a token from the store."""
    blocks = tuple(range(8))
    requests = [Request(0.0, 513, 1, blocks, PAGE), Request(1.0, 513, 1, blocks, PAGE)]
    fleet, _ = hosted(storage=True)
    found, log = told(requests, fleet)
    fetched = 512 * 20 * US
    assert found.hit_tokens == 512
    assert "512 prompt tokens were fetched from the store (HiCache L3) to host memory." in found.notes
    assert found.waits_s["storage"] == fetched / SECOND
    assert when(log, "first", 1) - SECOND == fetched + 1024 * US


def test_best_effort_takes_what_has_come_when_its_turn_is_there() -> None:
    """A fetch of 10 ms is too long for a request that is admitted at once, not for one that waits for KV tokens."""
    blocks = tuple(range(8))
    for ahead, hit in (1, 0), (1000, 512):
        requests = [
            Request(0.0, 513, 1, blocks, PAGE),
            Request(1.0, ahead, 30),  # on the other server, and holds most of its pool if it is the long one
            Request(1.0, 64, 1),
            Request(1.0, 513, 1, blocks, PAGE),  # on the other server too
        ]
        found = run(requests, hosted(storage=True, fetch_policy="best_effort")[0])
        assert found.hit_tokens == hit
        assert "storage" not in found.waits_s


def test_a_fetch_that_takes_too_long_is_given_up() -> None:
    """A fetch takes 1.024 s, patience lasts 1 s and 0.125 s for 512 tokens; the second fetch comes after the first."""

    class Slow(TableCosts):
        def host_load(self, tokens: int, *, storage: bool) -> int:
            return tokens * (2 * MS if storage else US)

    one, other = tuple(range(8)), tuple(range(50, 58))
    requests = [
        Request(at, 513, 1, blocks, PAGE) if blocks else Request(at, 64, 1)
        for at, blocks in ((0.0, ()), (0.0, one), (1.0, ()), (1.0, other), (5.0, one), (5.0, ()), (5.0, other))
    ]
    found, log = told(requests, hosted(storage=True, costs=Slow())[0])
    assert found.hit_tokens == 512
    assert found.waits_s["storage"] == 1.024 + 1.125
    assert when(log, "admit", 6) == 6_125 * MS
