"""When the requests of a trace arrive: its own clock, a rate instead of it, or none in a closed loop."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from perilune.rehearse.request import LATEST_S, Request
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.turns import turns

UNTIMED: Final = math.nan
"""The arrival of a request whose trace has no clock."""

DAY_S: Final = 86400.0

SORTABLE: Final = 2_000_000
"""Requests that may be held in memory to be sorted."""


def in_order(source: Source, requests: Iterator[Request], field: str) -> Iterator[Request]:
    """The same requests; UnusableInput for one that comes before the one above it."""
    latest = -math.inf
    for request in requests:
        if request.arrival_s < latest:
            raise source.bad(
                f"The request comes {latest - request.arrival_s:.6g} s before the one above it.",
                field=field,
                fix="Sort the file by time, or give --sort-trace.",
            )
        latest = request.arrival_s
        yield request


def by_arrival(source: Source, requests: Iterator[Request]) -> Iterator[Request]:
    """The same requests by arrival, equal arrivals in file order; all are held in memory, so there is a cap."""
    held: list[Request] = []
    for request in requests:
        held.append(request)
        if len(held) > SORTABLE:
            raise source.bad(f"More than {SORTABLE:,} requests cannot be sorted here.", fix="Sort the file by time.")
    held.sort(key=lambda request: request.arrival_s)
    return iter(held)


def from_zero(source: Source, requests: Iterator[Request], field: str) -> Iterator[Request]:
    """The same requests on a clock that starts with the first; UnusableInput for one later than a rehearsal can be."""
    start = math.nan
    for request in requests:
        if math.isnan(start):
            start = request.arrival_s
        request.arrival_s -= start
        if request.arrival_s > LATEST_S:
            raise source.bad(
                f"The request comes {request.arrival_s / DAY_S:,.0f} days after the first; "
                f"{LATEST_S / DAY_S:,.0f} are the most.",
                field=field,
            )
        yield request


def faster(heads: Iterator[Request], speedup: float) -> Iterator[Request]:
    """The same requests on a clock that runs `speedup` times faster, think times too."""
    for head in heads:
        for turn in turns(head):
            turn.arrival_s /= speedup
        yield head


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Instants of a Poisson process of `rate` a second, the first at 0."""
    rng = random.Random(seed)  # noqa: S311
    instant = 0.0
    while True:
        yield instant
        instant += rng.expovariate(rate)


def at(requests: Iterator[Request], instants: Iterator[float]) -> Iterator[Request]:
    """The same requests, each at the next instant."""
    for request, instant in zip(requests, instants, strict=False):
        request.arrival_s = instant
        yield request


def started(heads: Iterator[Request], starts: Iterator[float]) -> Iterator[Request]:
    """First turns in order of arrival, where the arrivals given count from the start of their own session.

    The turns of one session come one after another, and its sessions start at `starts`, which rise. Only sessions
    whose later chains are still to come are held.
    """
    pending: list[tuple[float, int, Request]] = []
    session, start = None, 0.0
    for count, head in enumerate(heads):
        if head.session != session:
            session, start = head.session, next(starts)
            while pending and pending[0][0] < start:
                yield heappop(pending)[2]
        head.arrival_s += start
        heappush(pending, (head.arrival_s, count, head))
    while pending:
        yield heappop(pending)[2]
