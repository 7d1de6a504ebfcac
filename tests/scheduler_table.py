"""Requests and settings that our scheduler and the engine's own are given alike; every forward takes a second."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from perilune.rehearse.engine import SHARE, Engine
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.simulate import simulate
from perilune.rehearse.ticks import SECOND, seconds
from rehearse_servers import Times, fleet_of, small_engine

BLOCK = 16

Told = list[tuple[float, str, int]]

RECORDED = Path(__file__).with_name("data") / "scheduler" / "engine.json.gz"
"""What the engine's scheduler did in the first cases of every kind."""

STILL: dict[str, Any] = {
    "dcp": 1,
    "strategy": "no_buffer",
    "track_interval": 64,
    "max_states_per_path": -1,
    "kernel_chunk": 16,
    "slots": None,
    "policy": "lru",
    "policy_config": None,
    "core": "python",
    "skip_decode_lock": False,
}
"""What the engine's cache is asked for beyond what a case is about."""


@dataclass(frozen=True)
class OneSecond(Times):
    """A second for every step."""

    def decode(self, local: int, total: int) -> tuple[int, int]:
        return SECOND, 0

    def chunk(self, local: int, total: int, pairs: int) -> int:
        return SECOND


def case(seed: int, **fixed: Any) -> dict[str, Any]:
    """A small server under too much load, and its requests."""
    random = Random(seed)
    page = random.choice((1, 4, 16))
    tokens = page * (random.randint(150, 700) // page)
    setup = STILL | {
        "page_size": page,
        "tokens": tokens,
        "disabled": random.random() < 0.3,
        "overlap": random.random() < 0.5,
        "ignore_eos": random.random() < 0.4,
        "schedule_policy": random.choice(("fcfs", "fcfs", "lof", "lpm")),
        "chunk": random.choice((None, 32, 64)),
        "max_prefill": random.choice((64, 200)),
        "mixed": random.random() < 0.2,
        "requests": random.randint(1, 8),
        "ratio": random.choice((0.7, 0.2)),
    }
    setup["mixed"] = setup["mixed"] and setup["chunk"] is not None
    shared = random.random() < 0.5
    setup |= fixed
    now = 0.0
    requests = []
    for _ in range(random.randint(5, 30)):
        now += round(random.choice((0.0, random.random(), 5 * random.random(), 40 * random.random())), 6)
        prompt = random.randint(1, tokens // 3)
        output = random.choice((1, 2, random.randint(1, 60), random.randint(1, tokens // 2)))
        # What the engine cuts before a request comes to its scheduler.
        output = min(output, tokens - 2 - prompt, tokens - -(-prompt // page) * page - page - 1)
        blocks = list(range(random.randint(0, 8))) if shared else []
        requests.append([now, prompt, output, blocks])
    return {"setup": setup, "requests": requests}


CASES: dict[str, list[dict[str, Any]]] = {
    "any mixture": [case(seed) for seed in range(120)],
    "overlap, ending by themselves": [case(seed, overlap=True, ignore_eos=False, ratio=0.05) for seed in range(40)],
    "no overlap, ending by themselves": [case(seed, overlap=False, ignore_eos=False, ratio=0.05) for seed in range(40)],
    "no radix cache, known lengths": [case(seed, disabled=True, ignore_eos=True) for seed in range(40)],
    "longest prefix first": [case(seed, schedule_policy="lpm", disabled=False) for seed in range(40)],
    "mixed chunks": [case(seed, chunk=32, mixed=True) for seed in range(40)],
}


def recorded() -> dict[str, list[Told]]:
    """The engine's answers to the first cases of every kind."""
    found = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {
        name: [[(at, what, request) for at, what, request in told] for told in every] for name, every in found.items()
    }


def ordered(told: Told) -> Told:
    """By instant, to the microsecond; the order within one is not compared."""
    return sorted((round(instant, 6), what, request) for instant, what, request in told)


def engine_of(setup: dict[str, Any]) -> Engine:
    """The server of a case."""
    tokens, page = setup["tokens"], setup["page_size"]
    start = round(setup["ratio"] * SHARE)
    least = round(setup["ratio"] * 0.14 * SHARE)
    eos = not setup["ignore_eos"]
    return small_engine(
        new_cache=lambda: RadixCache(tokens=tokens, page=page, disabled=setup["disabled"]),
        requests=setup["requests"],
        tokens=tokens,
        context=1 << 20,
        page=page,
        page_size=page,
        chunk=setup["chunk"],
        max_prefill=setup["max_prefill"],
        micro_batch=setup["requests"],
        overlap=setup["overlap"],
        mixed=setup["mixed"],
        schedule_policy=setup["schedule_policy"],
        ignore_eos=not eos,
        ratio=start if eos else SHARE,
        ratio_min=least if eos else SHARE,
        ratio_decay=(start - least) // 600 if eos else 0,
    )


def played(one: dict[str, Any]) -> Told:
    """What happens in a case, by the second."""
    told: Told = []
    requests = iter(
        [
            Request(arrival, prompt, output, tuple(blocks[: -(-prompt // BLOCK)]), BLOCK if blocks else 0)
            for arrival, prompt, output, blocks in one["requests"]
        ]
    )

    def log(now: int, what: str, index: int) -> None:
        if what != "arrive":
            told.append((seconds(now), what, index))

    simulate(Traffic(requests, "case"), fleet_of([(engine_of(one["setup"]), OneSecond())]), log=log)
    return told
