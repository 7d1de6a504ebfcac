"""Whatever the fleet and whatever fails, no request is lost and no pool leaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_table import PAGE, TableCosts, check_empty, engine, pd_fleet, run, server, watch
from perilune.rehearse.fleet.encoders import EncoderSettings
from perilune.rehearse.fleet.flags import RouterSettings
from perilune.rehearse.fleet.front import Front
from perilune.rehearse.fleet.outages import LOST, Outage
from perilune.rehearse.fleet.pd import PdFleet
from perilune.rehearse.fleet.policies import POLICIES
from perilune.rehearse.fleet.room import DecodeSettings
from perilune.rehearse.fleet.routed import RoutedFleet
from perilune.rehearse.fleet.server import Server
from perilune.rehearse.hicache import HostedCache, HostSettings, Tier, new_store
from perilune.rehearse.images import ImageSettings
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.radix import Snapshots
from perilune.rehearse.request import Request

Log = list[tuple[int, str, int]]
STATES = Snapshots.of("no_buffer", page_size=1, dcp=1, kernel_chunk=64, track_interval=256, overlap=True)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[Request], int | None]:
    """Requests that share prefixes, some with images, too long ones among them; and a closed loop or none."""
    closed = draw(st.booleans())
    requests = []
    arrival = 0.0
    for _ in range(draw(st.integers(1, 25))):
        arrival += 0.0 if closed else draw(st.sampled_from([0.0, 0.001, 0.013, 0.2]))
        blocks = tuple(draw(st.lists(st.integers(0, 3), max_size=12)))
        isl = draw(st.integers(1, 900)) if draw(st.integers(0, 19)) else 50_000
        images = tuple(draw(st.lists(st.integers(1, 300), max_size=3))) if draw(st.booleans()) else ()
        requests.append(
            Request(arrival, max(isl, sum(images)), draw(st.integers(1, 60)), blocks, PAGE if blocks else 0, images)
        )
    return requests, draw(st.integers(1, 12)) if closed else None


@st.composite
def outages(draw: st.DrawFn, names: list[str]) -> list[Outage]:
    found = []
    for name in names:
        at = 0.0
        for _ in range(draw(st.integers(0, 2))):
            at += draw(st.sampled_from([0.0, 0.0107, 0.05, 0.31]))
            down = draw(st.sampled_from([0.0, 0.02, 0.3]))
            found.append(Outage(name, at, down))
            at += down + 0.001
    return found


engines = st.fixed_dictionaries(
    {
        "states": st.sampled_from([None, 3, 12]),
        "tokens": st.sampled_from([16 * PAGE, 40 * PAGE, 400 * PAGE]),
        "requests": st.integers(1, 8),
        "chunk": st.sampled_from([None, 128, 512]),
        "ranks": st.integers(1, 2),
        "lanes": st.integers(1, 2),
        "overlap": st.booleans(),
        "acceptance": st.sampled_from([((1000, 1),), ((2500, 1),), ((1000, 1), (3300, 2))]),
    }
)


def whole(of: dict[str, Any]) -> dict[str, Any]:
    """Engine settings that go together."""
    of = dict(of)
    speculates = of["acceptance"] != ((1000, 1),)
    of["speculates"], of["reserve"] = speculates, 8 if speculates else 0
    if of["lanes"] > 1:
        of["overlap"] = False
    if of["states"] is not None:
        of["requests"] = min(of["requests"], of["states"] // 3)
    return of


def host(base: Server, store: Tier | None, policy: str, *, states: int | None, tokens: int) -> Server:
    """The same server with a host tier, and a store where one is given."""
    found = HostSettings(4 * tokens, 2 * (states or 0), policy, storage=store is not None)  # type: ignore[arg-type]
    page = PAGE if states is None else 1

    def new_cache() -> HostedCache:
        return HostedCache(host=found, store=store, tokens=tokens, page=page, slots=states, snapshots=STATES)

    return replace(base, engine=replace(base.engine, new_cache=new_cache), host=found)


def served(make: Any, load: tuple[list[Request], int | None], seed: int) -> tuple[Front, Log]:
    """Run a fleet twice and then one step at a time: alike, and with every request accounted for."""
    requests, concurrency = load
    logs: list[Log] = []
    outcomes: list[Outcome] = []
    fleet: Front
    for one_step in (False, False, True):
        fleet = make()
        log: Log = []
        look = watch(fleet)

        def note(now: int, what: str, index: int, log: Log = log, look: Any = look) -> None:
            log.append((now, what, index))
            look(now, what, index)

        found = run(
            [replace(one) for one in requests], fleet, concurrency=concurrency, seed=seed, one_step=one_step, log=note
        )
        logs.append(log)
        outcomes.append(found)
        ends = [index for _, what, index in log if what in ("finish", "reject")]
        assert sorted(ends) == list(range(len(requests)))
        assert found.requests.completed + found.requests.rejected == len(requests)
        assert found.requests.unfinished == 0
        assert all(waited >= 0 for waited in found.waits_s.values())
    again, stepped = outcomes[1:]
    assert logs[0] == logs[1] == logs[2]
    assert outcomes[0] == again
    for name in ("duration_s", "ttft_s", "tpot_s", "itl_s", "e2e_s", "waits_s", "hit_tokens", "admitted_max", "notes"):
        assert getattr(again, name) == getattr(stepped, name), name
    check_empty(fleet.replicas)
    return fleet, logs[0]


@settings(max_examples=40, deadline=None)
@given(st.data(), workloads(), engines, st.integers(1, 3), st.sampled_from(POLICIES), st.sampled_from(LOST))
def test_unified(data: st.DataObject, load: Any, of: dict[str, Any], count: int, router: Any, lost: Any) -> None:
    failures = data.draw(outages([f"unified-{number}" for number in range(count)]))
    encoders = data.draw(st.sampled_from([None, 1, 3]))
    hosted = data.draw(st.sampled_from([None, "write_through", "write_through_selective", "write_back"]))
    stored = data.draw(st.booleans())
    of = whole(of)

    def make() -> RoutedFleet:
        base = replace(server(**of), images=ImageSettings(host_bytes_per_s=1e9, pool_bytes=1 << 21))
        if hosted is not None:
            store = new_store(1 if of["states"] else PAGE, states=of["states"] is not None) if stored else None
            base = host(base, store, hosted, states=of["states"], tokens=of["tokens"])
        settings_ = None
        if encoders is not None:
            settings_ = EncoderSettings(servers=encoders, encode=lambda tokens, graph: tokens * 7, send=lambda n: n)
        return RoutedFleet(
            [base] * count, router=RouterSettings(decode=router), outages=failures, lost=lost, encoders=settings_
        )

    served(make, load, 3)


@settings(max_examples=60, deadline=None)
@given(st.data(), workloads(), engines, engines, st.integers(1, 2), st.integers(1, 2), st.sampled_from(LOST))
def test_pairs(
    data: st.DataObject,
    load: Any,
    of_prefill: dict[str, Any],
    of_decode: dict[str, Any],
    prefill: int,
    decode: int,
    lost: Any,
) -> None:
    names = [f"prefill-{number}" for number in range(prefill)] + [f"decode-{number}" for number in range(decode)]
    failures = data.draw(outages(names))
    allocation: Any = data.draw(st.sampled_from(["early", "prefill_complete"]))
    encoders = data.draw(st.sampled_from([None, 2]))
    room = DecodeSettings(
        extra_slots=data.draw(st.integers(0, 6)),
        reserved_tokens=data.draw(st.sampled_from([0, 64, 512])),
        backup=data.draw(st.booleans()),
    )
    picks: list[Any] = data.draw(st.lists(st.sampled_from(POLICIES), min_size=2, max_size=2))

    hosted = data.draw(st.sampled_from([None, "write_through", "write_back"]))
    of_prefill, of_decode = whole(of_prefill), whole(of_decode)

    def make() -> Front:
        base = replace(server("prefill", **of_prefill), images=ImageSettings(host_bytes_per_s=1e9))
        if hosted is not None:
            states, tokens = of_prefill["states"], of_prefill["tokens"]
            store = new_store(PAGE if states is None else 1, states=states is not None)
            base = host(base, store, hosted, states=states, tokens=tokens)
        tower = None
        if encoders is not None:
            tower = EncoderSettings(servers=encoders, encode=lambda tokens, graph: tokens * 7, send=lambda n: n)
        return PdFleet(
            [base] * prefill,
            [(server("decode", **of_decode), room)] * decode,
            router=RouterSettings(*picks),
            allocation=allocation,
            outages=failures,
            lost=lost,
            encoders=tower,
        )

    served(make, load, 5)


@settings(max_examples=40, deadline=None)
@given(workloads(), engines, engines, st.sampled_from(["early", "prefill_complete"]), st.integers(0, 6))
def test_one_step_at_a_time_changes_nothing(
    load: Any, of_prefill: dict[str, Any], of_decode: dict[str, Any], allocation: Any, extra: int
) -> None:
    requests, concurrency = load
    logs: list[Log] = []
    for one_step in (False, True):
        log: Log = []
        fleet = pd_fleet(
            2,
            2,
            settings=DecodeSettings(extra_slots=extra, reserved_tokens=64),
            of_prefill=whole(of_prefill),
            of_decode=whole(of_decode),
            allocation=allocation,
        )
        run(requests, fleet, concurrency=concurrency, one_step=one_step, log=lambda *event, log=log: log.append(event))
        logs.append(log)
    assert logs[0] == logs[1]


def test_the_table_engine_is_what_it_says() -> None:
    assert engine().tokens == 6400
    assert TableCosts().transfer(0) == TableCosts().transfer(1) - 10**9
