"""Small servers, made-up step times and random traffic, for the tests of the simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from perilune.rehearse.costs import Basis, Costs
from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.fleet.flags import RouterSettings
from perilune.rehearse.fleet.outages import Outage
from perilune.rehearse.fleet.routed import RoutedFleet
from perilune.rehearse.fleet.server import Server
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.radix.snapshots import Snapshots
from perilune.rehearse.request import Request, Traffic


@dataclass(frozen=True)
class Times:
    """Step times in ticks that grow with what they depend on."""

    base: int = 10**13
    row: int = 10**11
    per_milli: int = 400
    token: int = 10**10
    pair: int = 10**6
    basis: Basis = "fitted"
    error_band: tuple[float, float] = (0.9, 1.1)

    def decode(self, local: int, total: int) -> tuple[int, int]:
        return self.base + self.row * total, self.per_milli

    def chunk(self, local: int, total: int, pairs: int) -> int:
        return self.base + self.token * total + self.pair * pairs

    def encode(self, image_tokens: int, *, graph: bool) -> int:
        return self.base

    def transfer(self, tokens: int) -> int:
        return self.base

    def host_load(self, tokens: int, *, storage: bool) -> int:
        return self.base


def small_engine(**changes: object) -> Engine:
    """A server of 8 requests and 4,096 tokens without a state pool, but for `changes`."""
    fields: dict[str, object] = {
        "name": "unified",
        "role": "unified",
        "gpus": 8,
        "requests": 8,
        "tokens": 4096,
        "slots": 0,
        "context": 4096,
        "page": 16,
        "page_size": 16,
        "chunk": 256,
        "max_prefill": 256,
    }
    fields.update(changes)
    if "new_cache" not in fields:
        tokens, page = fields["tokens"], fields["page"]
        assert isinstance(tokens, int)
        assert isinstance(page, int)
        fields["new_cache"] = lambda: RadixCache(tokens=tokens, page=page)
    return Engine(**fields)  # type: ignore[arg-type]


def fleet_of(servers: Sequence[tuple[Engine, Costs]], outages: Sequence[Outage] = ()) -> RoutedFleet:
    """Servers that get requests in turn."""
    made = [Server(engine=engine, costs=costs) for engine, costs in servers]
    return RoutedFleet(made, router=RouterSettings(decode="round_robin"), outages=outages)


def random_engine(random: Random) -> Engine:
    """Any mixture of flags that the engine accepts, with pools small enough to run out."""
    page_size = random.choice((1, 4, 16))
    dcp = random.choice((1, 1, 4))
    page = page_size * dcp
    requests = random.randint(1, 6)
    tokens = page * random.randint(200 // page + 4, 900 // page + 4)
    lanes = random.choice((1, 1, 1, 2, 3))
    speculates = random.random() < 0.4
    ignore_eos = random.random() < 0.5
    overlap = lanes == 1 and random.random() < 0.7
    kind = random.choice(("none", "kv", "no_buffer", "extra_buffer", "extra_buffer_lazy"))
    if kind == "no_buffer" and page > 1:
        kind = "extra_buffer"
    snapshots, each = None, 0
    if kind in ("no_buffer", "extra_buffer", "extra_buffer_lazy"):
        snapshots = Snapshots.of(
            kind, page_size=page_size, dcp=dcp, kernel_chunk=16, track_interval=64, overlap=overlap
        )
        each = 3 + snapshots.buffers
    slots = requests * each + random.randint(0, 4) if snapshots else None
    chunk = random.choice((None, 64, 96))
    skip = random.random() < 0.3

    def new_cache() -> RadixCache:
        return RadixCache(
            tokens=tokens,
            page=page,
            slots=slots,
            snapshots=snapshots,
            skip_decode_lock=skip,
            disabled=kind == "none",
        )

    return small_engine(
        new_cache=new_cache,
        requests=requests,
        tokens=tokens,
        slots=slots or 0,
        context=random.choice((300, 4096)),
        page=page,
        page_size=page_size,
        chunk=chunk,
        max_prefill=random.choice((64, 200)),
        ranks=random.choice((1, 1, 2, 3)),
        lanes=lanes,
        micro_batch=max(requests // lanes, 1),
        overlap=overlap,
        mixed=chunk is not None and random.random() < 0.2,
        align=16 if snapshots and dcp > 1 else 1,
        schedule_policy=random.choice(("fcfs", "fcfs", "lpm", "lof")),
        load_balance=random.choice(("round_robin", "total_requests", "total_tokens")),
        prefill_max_requests=random.choice((None, None, 1)),
        max_queued=random.choice((None, None, 6)),
        speculates=speculates,
        acceptance=random.choice((((4500, 1),), ((2300, 1), (4000, 2), (1000, 1)))) if speculates else ((1000, 1),),
        reserve=8 if speculates else 0,
        ignore_eos=ignore_eos,
        ratio=SHARE if ignore_eos else 700_000_000,
        ratio_min=SHARE if ignore_eos else 98_000_000,
        ratio_decay=0 if ignore_eos else 1_003_333,
        clip=random.choice((4096, 20)),
        retract_steps=random.choice((20, 2)),
        late=random.choice((0, 630)) if overlap else 0,
    )


def random_traffic(random: Random, requests: int = 25) -> Traffic:
    """Requests of any length that share prefixes, one after the other or in a closed loop, some with later turns."""
    closed = random.randint(1, 12) if random.random() < 0.4 else None
    pace = random.choice((0.002, 0.03, 0.4))
    now = 0.0
    made = []
    for number in range(requests):
        now += random.expovariate(1 / pace) if random.random() < 0.8 else 0.0
        made.append(_request(random, now, number))
    return Traffic(iter(made), "random", closed, requests)


def _request(random: Random, arrival: float, number: int) -> Request:
    isl = random.choice((1, 15, 16, 33, random.randint(1, 250), random.randint(1, 250)))
    osl = random.choice((1, 2, random.randint(1, 40), random.randint(1, 120)))
    blocks: tuple[int, ...] = ()
    if random.random() < 0.6:
        shared = random.randint(0, 12)
        blocks = tuple(range(shared)) + tuple(range(1000 * number + 100, 1000 * number + 120))
        blocks = blocks[: -(-(isl + osl) // 16)]
    then = None
    if random.random() < 0.2:
        then = Request(random.choice((0.0, 0.5)), isl + osl + 5, random.randint(1, 20), blocks, 16 if blocks else 0)
    return Request(arrival, isl, osl, blocks, 16 if blocks else 0, then=then)
