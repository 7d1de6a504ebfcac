"""Many steps at once and one at a time give the same events; whatever is mixed, nothing is lost or held twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perilune.rehearse.fleet.outages import Outage
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.simulate import simulate
from perilune.rehearse.ticks import SECOND
from rehearse_servers import Times, fleet_of, random_engine, random_traffic, small_engine

Event = tuple[int, str, int]


@dataclass
class Watched:
    """A run of a random fleet that checks both pools of every rank at every event of a request."""

    seed: int
    one_step: bool = False
    fails: bool = False
    events: list[Event] = field(default_factory=list)
    outcome: Outcome | None = None

    def run(self) -> Outcome:
        random = Random(self.seed)
        engines = [random_engine(random) for _ in range(random.choice((1, 1, 2)))]
        traffic = random_traffic(random)
        times = Times(per_milli=random.choice((0, 400, 10**7)))
        servers = [(engine, times) for engine in engines]
        self.fleet = fleet_of(servers, _outages(random, len(servers)) if self.fails else ())
        found = simulate(
            traffic, self.fleet, seed=self.seed, one_step=self.one_step, log=self._log, stop=self._endless(20_000)
        )
        self.outcome = found
        return found

    def _endless(self, most: int) -> object:
        looks = iter(range(most))
        return lambda: next(looks, None) is None

    def _log(self, now: int, what: str, index: int) -> None:
        self.events.append((now, what, index))
        for replica in self.fleet.replicas:
            for rank in replica.ranks:
                cache, engine = rank.cache, replica.engine
                assert cache.tokens_free >= 0
                assert cache.tokens_evictable >= 0
                assert cache.tokens_free + cache.tokens_evictable <= cache.tokens
                assert 0 <= cache.slots_free + cache.slots_evictable <= cache.slots
                assert 0 <= rank.rows <= engine.requests

    def assert_all_given_back(self) -> None:
        for replica in self.fleet.replicas:
            assert replica.load == 0
            for rank in replica.ranks:
                cache = rank.cache
                assert (rank.rows, rank.prompts, len(rank.queue)) == (0, 0, 0)
                assert cache.tokens_free + cache.tokens_evictable == cache.tokens
                assert cache.slots_free + cache.slots_evictable == cache.slots
            for lane in replica.lanes:
                batch = lane.batch
                assert (batch.count, batch.kv, batch.growth, batch.remaining, batch.settled) == (0, 0, 0, 0, 0)


def _outages(random: Random, servers: int) -> list[Outage]:
    """Servers fail one after the other; what they had starts over on one that is up, or waits for one."""
    outages, at = [], 0.0
    for _ in range(random.randint(1, 4)):
        at += random.random()
        outages.append(Outage(f"unified-{random.randrange(servers)}", at, random.random()))
        at += 1.0
    return outages


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9))
def test_one_step_at_a_time_gives_the_same_events(seed: int) -> None:
    many, one = Watched(seed), Watched(seed, one_step=True)
    at_once, stepped = many.run(), one.run()
    assert many.events == one.events
    assert at_once.itl_s == stepped.itl_s
    assert at_once.waits_s == stepped.waits_s
    assert at_once.requests == stepped.requests


@dataclass(frozen=True)
class Counted(Times):
    """Remembers how often a decode step was asked about."""

    asked: list[int] = field(default_factory=list)

    def decode(self, local: int, total: int) -> tuple[int, int]:
        self.asked.append(total)
        return super().decode(local, total)


@pytest.mark.parametrize(
    "flags",
    [{"overlap": True}, {"overlap": False}, {"overlap": False, "lanes": 2}, {"overlap": False, "ranks": 2}],
    ids=str,
)
def test_steps_at_which_nothing_is_decided_are_not_looked_at(flags: dict[str, object]) -> None:
    counts = []
    for one_step in (False, True):
        times = Counted()
        traffic = Traffic(iter([Request(0.0, 100, 1000), Request(0.0, 100, 500)]), "two")
        simulate(traffic, fleet_of([(small_engine(**flags), times)]), one_step=one_step)
        counts.append(len(times.asked))
    assert counts[0] < 10
    assert counts[1] >= 999


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.booleans())
def test_every_request_ends_and_everything_comes_back(seed: int, fails: bool) -> None:
    watched = Watched(seed, fails=fails)
    found = watched.run()
    arrived = {index for _, what, index in watched.events if what == "arrive"}
    ends = [index for _, what, index in watched.events if what in ("finish", "reject")]
    assert not found.interrupted
    assert sorted(ends) == sorted(arrived)
    assert found.requests.completed + found.requests.rejected == len(arrived)
    watched.assert_all_given_back()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_gaps_between_outputs_fill_the_time_between_first_and_last(seed: int) -> None:
    watched = Watched(seed)
    found = watched.run()
    begun = {index for _, what, index in watched.events if what == "first"}
    if begun & {index for _, what, index in watched.events if what == "reject"}:
        return  # one was refused half-way, when the pool could not hold it alone: its gaps count, its end does not
    gaps = found.itl_s.mean * found.itl_s.count
    spans = found.e2e_s.mean * found.e2e_s.count - found.ttft_s.mean * found.ttft_s.count
    assert gaps == pytest.approx(spans, rel=1e-6, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_causes_add_up_to_all_the_time_in_queues(seed: int) -> None:
    watched = Watched(seed)
    found = watched.run()
    since: dict[int, int] = {}
    waited = 0
    for now, what, index in watched.events:
        if what in ("arrive", "retract"):
            since[index] = now
        elif index in since and what in ("admit", "reject"):
            waited += now - since.pop(index)
    assert sum(found.waits_s.values()) == pytest.approx(waited / SECOND, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_seed_gives_the_same_outcome(seed: int) -> None:
    assert Watched(seed).run() == Watched(seed).run()
