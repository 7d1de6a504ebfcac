"""Small fleets with step times that are easy to follow, and what must hold of them at every moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perilune.rehearse.costs import Basis
from perilune.rehearse.engine import Engine
from perilune.rehearse.fleet.front import Front
from perilune.rehearse.fleet.pd import PdFleet
from perilune.rehearse.fleet.room import DecodeSettings
from perilune.rehearse.fleet.server import Server
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.radix import RadixCache, Snapshots
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.simulate import simulate
from perilune.rehearse.ticks import SECOND

MS = SECOND // 1000
US = SECOND // 1_000_000
PAGE = 64


class TableCosts:
    """Times in round numbers: a decode step takes 10 ms, a chunk 1 ms and 10 us a token, a transfer 1 us a token."""

    basis: Basis = "borrowed"
    error_band = (0.5, 2.0)

    def decode(self, local: int, total: int) -> tuple[int, int]:
        return 10 * MS + local * 20 * US, 7

    def chunk(self, local: int, total: int, pairs: int) -> int:
        return MS + local * 10 * US

    def encode(self, image_tokens: int, *, graph: bool) -> int:
        return image_tokens * (5 if graph else 10) * US

    def transfer(self, tokens: int) -> int:
        return 100 * US + tokens * US

    def host_load(self, tokens: int, *, storage: bool) -> int:
        return tokens * (20 if storage else 2) * US


def engine(name: str = "unified", **given: Any) -> Engine:
    """A small server: 100 pages of 64 tokens, 8 requests; with `states` slots, that many state slots."""
    states = given.pop("states", None)
    tokens = given.pop("tokens", 100 * PAGE)
    page = given.pop("page", PAGE if states is None else 1)
    disabled = given.pop("disabled", name == "decode")
    snapshots = Snapshots.of("no_buffer", page_size=1, dcp=1, kernel_chunk=64, track_interval=256, overlap=True)

    def new_cache() -> RadixCache:
        return RadixCache(tokens=tokens, page=page, slots=states, snapshots=snapshots, disabled=disabled)

    settings: dict[str, Any] = {
        "new_cache": new_cache,
        "requests": 8,
        "tokens": tokens,
        "slots": states or 0,
        "context": 1 << 20,
        "page": page,
        "page_size": page,
        "chunk": 512,
        "max_prefill": 1024,
        "gpus": 8,
    }
    return Engine(name=name, role=name, **settings | given)


def server(name: str = "unified", **given: Any) -> Server:
    return Server(engine=engine(name, **given), costs=TableCosts())


def pd_fleet(
    prefill: int = 1,
    decode: int = 1,
    *,
    settings: DecodeSettings | None = None,
    of_prefill: dict[str, Any] | None = None,
    of_decode: dict[str, Any] | None = None,
    **given: Any,
) -> PdFleet:
    settings = settings or DecodeSettings(extra_slots=4, reserved_tokens=64)
    return PdFleet(
        [server("prefill", **of_prefill or {})] * prefill,
        [(server("decode", **of_decode or {}), settings)] * decode,
        **given,
    )


def run(requests: Iterable[Request], fleet: Front, *, concurrency: int | None = None, **given: Any) -> Outcome:
    return simulate(Traffic(iter(requests), "table", concurrency=concurrency), fleet, **given)


def watch(fleet: Front) -> Callable[[int, str, int], None]:
    """A log that looks at every server's pools whenever something happens to a request."""

    def look(now: int, what: str, index: int) -> None:
        for replica in fleet.replicas:
            check_bounds(replica)

    return look


def check_bounds(replica: Replica) -> None:
    """Nothing is negative, nothing over the pool, whoever holds it."""
    for rank in replica.ranks:
        cache, most = rank.cache, replica.engine.requests
        assert cache.tokens_free >= 0
        assert 0 <= cache.tokens_evictable <= cache.tokens_cached
        assert cache.tokens_free + cache.tokens_cached <= cache.tokens
        assert cache.slots_free >= 0
        assert 0 <= cache.slots_evictable <= cache.slots_cached
        assert cache.slots_free + cache.slots_cached <= cache.slots
        running = sum(lane.batch.count for lane in replica.lanes if lane.rank is rank)
        assert 0 <= running <= most
        assert rank.rows >= running or replica.engine.role == "decode"
    assert replica.load >= 0


def check_empty(replicas: Sequence[Replica]) -> None:
    """All requests are gone, and everything they held is free or cached."""
    for replica in replicas:
        assert replica.load == 0
        assert not replica.away
        for rank in replica.ranks:
            cache = rank.cache
            assert (rank.rows, rank.prompts, len(rank.queue), rank.chunked) == (0, 0, 0, None)
            assert cache.tokens_free + cache.tokens_cached == cache.tokens
            assert cache.tokens_evictable == cache.tokens_cached
            assert cache.slots_free + cache.slots_cached == cache.slots
            assert cache.slots_evictable == cache.slots_cached
        assert all(lane.batch.count == 0 for lane in replica.lanes)
