"""`benchmarks.json` of guidellm. Source: guidellm 0.8 benchmark/schemas and scheduler/strategies.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perilune.errors import UnusableInput
from perilune.rehearse.calibration.results.result import Entry, Result, loop

MARK = "benchmarks"
TOOL = "guidellm"


def results(entry: Entry) -> Iterator[Result]:
    """The run of every benchmark of a report; raises UnusableInput naming a field that cannot be used."""
    listed: Any = entry.values.get(MARK)
    if not isinstance(listed, list) or not listed:
        raise UnusableInput("benchmarks is no list of runs.", where=entry.where)
    for number, item in enumerate(listed, 1):
        if not isinstance(item, Mapping):
            raise UnusableInput(f"Run {number} of benchmarks is no mapping.", where=entry.where)
        yield _result(Entry(item, f"{entry.where}, run {number}"))


def _result(entry: Entry) -> Result:
    """guidellm's `inter_token_latency_ms` is that of a request on average, without its first token: TPOT."""
    metrics = entry.inner("metrics")
    concurrency, rate = loop(entry, *_load(entry.inner("config", "strategy")))

    def of(name: str, what: str) -> float:
        return metrics.inner(name, "successful").number(what)

    tokens = round(of("output_token_count", "mean"))
    return Result(
        source=entry.where,
        tool=TOOL,
        concurrency=concurrency,
        rate=rate,
        requests=metrics.inner("request_totals").count("successful"),
        isl=round(of("prompt_token_count", "mean")),
        osl=tokens,
        range_ratio=1.0,
        ttft_s=of("time_to_first_token_ms", "median") / 1000,
        tpot_s=of("inter_token_latency_ms", "median") / 1000 if tokens > 1 else None,
        tokens_per_s=of("tokens_per_second", "mean"),
    )


def _load(strategy: Entry) -> tuple[float | None, float | None]:
    kind = strategy.text("type_")
    if kind == "synchronous":
        return 1.0, None
    if kind == "concurrent":
        return float(strategy.count("streams")), None
    if kind == "throughput":
        return strategy.maybe("max_concurrency"), None
    if kind == "poisson":
        return strategy.maybe("max_concurrency"), strategy.number("rate")
    raise UnusableInput(
        f"A run of strategy {kind[:40]!r} cannot be repeated.",
        where=strategy.where,
        fix="Measure with the concurrent, synchronous or poisson profile.",
    )
