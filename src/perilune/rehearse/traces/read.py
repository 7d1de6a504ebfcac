"""From a trace file to traffic: format, clock, order and how much of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

from perilune.errors import UnusableInput
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.traces import clock, mooncake
from perilune.rehearse.traces.formats import Format, named, sniff
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.turns import limited

MOST_RATE = 1e6
MOST_SPEEDUP = 1e6


def traffic(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    limit: int | None = None,
    speedup: float = 1.0,
    seed: int = 0,
    rate: float | None = None,
    concurrency: int | None = None,
    spread: bool = True,
    sort: bool = False,
    share_prefix: bool = False,
) -> Traffic:
    """The traffic of a trace, read as it is used.

    `format` names the format, else it is told from the first line. `limit` takes the first requests. `speedup` runs the
    trace's clock faster, think times too. `rate` replaces arrivals by a Poisson process (of sessions, where a format
    has them) and `concurrency` by a closed loop; a format without a common clock needs one of them. `spread` scatters
    the requests of a stepped Mooncake clock within its steps, and `sort` orders a file that is not in order (in
    memory). `share_prefix` gives the sessions of WEKA and TraceLab their tool and system prompts in common.

    Raises UnusableInput, at once for what the first request shows, else while reading.
    """
    _check(limit, speedup, rate, concurrency)
    form = sniff(path) if format is None else named(format)
    if share_prefix and form.name not in ("weka", "tracelab"):
        raise UnusableInput(f"A {form.name} trace has no tool and system prompts to share.", where=str(path))
    source = Source(path)
    requests = form.read(source, share_prefix)
    first = next(requests, None)
    if first is None:
        source.finish()
        reasons = ["The trace holds no request that can be served", *source.notes]
        raise UnusableInput(f"{'; '.join(reasons)}.", where=str(path))
    requests = chain([first], requests)
    if rate is not None:
        requests = _at_rate(form, requests, rate, seed)
    elif form.clock == "sessions":
        requests = clock.started(requests if concurrency else _single(source, requests), repeat(0.0))
    elif math.isnan(first.arrival_s):
        if concurrency is None:
            raise UnusableInput(
                "The trace does not say when requests come.", where=str(path), fix="Give a rate or a concurrency."
            )
        requests = clock.at(requests, repeat(0.0))
    else:
        requests = clock.by_arrival(source, requests) if sort else clock.in_order(source, requests, form.time_field)
        requests = clock.from_zero(source, requests, form.time_field)
        if spread and form.name == "mooncake":
            requests = mooncake.spread(source, requests, seed)
    if speedup != 1:
        requests = clock.faster(requests, speedup)
    if limit is not None:
        requests = limited(requests, limit)
    return Traffic(_finished(source, requests), f"{form.name}: {path.name}", concurrency, notes=source.notes)


def _check(limit: int | None, speedup: float, rate: float | None, concurrency: int | None) -> None:
    for name, value, most in (("speedup", speedup, MOST_SPEEDUP), ("rate", rate, MOST_RATE)):
        if value is not None and not (math.isfinite(value) and 0 < value <= most):
            raise UnusableInput(f"It must be over 0 and at most {most:g}, not {value:g}.", where=name)
    for name, count in (("limit", limit), ("concurrency", concurrency)):
        if count is not None and count < 1:
            raise UnusableInput(f"It must be at least 1, not {count}.", where=name)
    if rate is not None and concurrency is not None:
        raise UnusableInput("A rate and a concurrency exclude each other.", where="rate")


def _at_rate(form: Format, requests: Iterator[Request], rate: float, seed: int) -> Iterator[Request]:
    """Requests, or whole sessions, at the instants of a Poisson process."""
    instants = clock.poisson(rate, seed)
    if form.clock == "sessions":
        return clock.started(requests, instants)
    return clock.at(requests, instants)


def _single(source: Source, heads: Iterator[Request]) -> Iterator[Request]:
    """The chains of one session; UnusableInput when a second one comes."""
    session = None
    for head in heads:
        if session is not None and head.session != session:
            raise UnusableInput(
                "The sessions of the trace have no common clock.",
                where=str(source.path),
                fix="Give a rate of sessions or a concurrency.",
            )
        session = head.session
        yield head


def _finished(source: Source, requests: Iterator[Request]) -> Iterator[Request]:
    yield from requests
    source.finish()
