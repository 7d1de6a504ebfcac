"""Mooncake traces (FAST'25): JSON lines, milliseconds, ids of 512-token blocks that hold across the whole file.

The published conversation trace gives time in steps of 3 seconds, up to 28 requests at one instant. Taken literally
the queue would see bursts that nobody sent; `spread` puts the requests of a step at random instants within it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from typing import Final

import msgspec

from perilune.rehearse.request import Request
from perilune.rehearse.traces.blocks import fitting
from perilune.rehearse.traces.jsonl import objects
from perilune.rehearse.traces.source import Source

BLOCK_TOKENS: Final = 512
FIELDS: Final = ("timestamp", "input_length", "output_length")

LOOK: Final = 1000
"""Requests looked at to tell whether the clock of a trace goes in steps."""

SHORTEST_STEP_S: Final = 1.0
MOST_IN_A_STEP: Final = 100_000


class Row(msgspec.Struct, gc=False):
    """One line."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Row)


def read(source: Source) -> Iterator[Request]:
    """The requests of a Mooncake file, in file order."""
    for row in objects(source, _DECODER):
        arrival_s = row.timestamp / 1000
        if source.usable(FIELDS, arrival_s, row.input_length, row.output_length):
            ids = fitting(source, row.hash_ids, BLOCK_TOKENS, row.input_length + row.output_length)
            yield Request(arrival_s, row.input_length, row.output_length, ids, BLOCK_TOKENS)


def spread(source: Source, requests: Iterator[Request], seed: int) -> Iterator[Request]:
    """The same requests, those of a step at random instants within it, in the same order.

    A trace counts as stepped when, in its first requests, instants that differ lie a second or more apart and some are
    shared; any other trace passes unchanged. The instants of a step are uniform order statistics: n draws, sorted.
    """
    first = list(islice(requests, LOOK))
    step_s = step_of([request.arrival_s for request in first])
    everything = chain(first, requests)
    if step_s is None:
        return everything
    source.notes.append(f"arrivals spread within the trace's steps of {step_s:g} s")
    return _within(source, everything, step_s, random.Random(seed))  # noqa: S311


def step_of(instants: list[float]) -> float | None:
    """The usual step of a clock that goes in steps, in seconds; None of one that does not."""
    distinct = sorted(set(instants))
    gaps = sorted(later - sooner for sooner, later in pairwise(distinct))
    if not gaps or gaps[0] < SHORTEST_STEP_S or len(distinct) == len(instants):
        return None
    return gaps[len(gaps) // 2]


def _within(source: Source, requests: Iterator[Request], step_s: float, rng: random.Random) -> Iterator[Request]:
    group: list[Request] = []
    for request in requests:
        if group and request.arrival_s != group[0].arrival_s:
            yield from _scattered(group, min(step_s, request.arrival_s - group[0].arrival_s), rng)
            group = []
        group.append(request)
        if len(group) > MOST_IN_A_STEP:
            raise source.bad(
                f"More than {MOST_IN_A_STEP:,} requests share one instant.",
                field=FIELDS[0],
                fix="Give --no-spread.",
            )
    yield from _scattered(group, step_s, rng)


def _scattered(group: list[Request], width_s: float, rng: random.Random) -> Iterator[Request]:
    for request, share in zip(group, sorted([rng.random() for _ in group]), strict=True):
        request.arrival_s += share * width_s
        yield request
