"""A line of `sglang.bench_serving --output-file`. Source: SGLang 0.5.23 benchmark/serving.py."""

from __future__ import annotations

import math

from perilune.errors import UnusableInput
from perilune.rehearse.calibration.results.result import Entry, Result, loop

MARKS = ("completed", "median_ttft_ms")
TOOL = "sglang.bench_serving"


def result(entry: Entry) -> Result:
    """The run of one line; raises UnusableInput naming a field that cannot be used.

    A closed loop has a `max_concurrency` and an infinite `request_rate`; without a limit all requests come at once.
    """
    completed = entry.count("completed")
    limit, rate = entry.maybe("max_concurrency"), _rate(entry)
    concurrency, rate = loop(entry, completed if limit is None and rate is None else limit, rate)
    drawn = entry.text("dataset_name").startswith("random")
    isl = entry.number("random_input_len" if drawn else "total_input_tokens")
    osl = entry.number("random_output_len" if drawn else "total_output_tokens")
    tokens = round(osl if drawn else osl / completed)
    return Result(
        source=entry.where,
        tool=TOOL,
        concurrency=concurrency,
        rate=rate,
        requests=completed,
        isl=round(isl if drawn else isl / completed),
        osl=tokens,
        range_ratio=_range_ratio(entry) if drawn else 1.0,
        ttft_s=entry.number("median_ttft_ms") / 1000,
        tpot_s=entry.number("median_tpot_ms") / 1000 if tokens > 1 else None,
        tokens_per_s=_throughput(entry),
        accepted=entry.maybe("accept_length"),
    )


def _range_ratio(entry: Entry) -> float:
    """Lengths of the random dataset go from this share of the most to the most; 0, the tool's default, from 1."""
    if entry.values.get("random_range_ratio") == 0:
        return 0.0
    found = entry.number("random_range_ratio")
    if found > 1:
        raise UnusableInput(f"random_range_ratio is {found:g}, above 1.", where=entry.where)
    return found


def _rate(entry: Entry) -> float | None:
    value = entry.values.get("request_rate")
    if value is None or (isinstance(value, float) and math.isinf(value)) or value == "inf":
        return None
    if value == "trace":
        raise UnusableInput("The run replayed a trace, which calibration cannot.", where=entry.where)
    return entry.maybe("request_rate")


def _throughput(entry: Entry) -> float:
    if entry.values.get("input_throughput") is None:
        return entry.number("total_throughput")
    whole = entry.maybe("total_throughput")
    return entry.number("input_throughput") + entry.number("output_throughput") if whole is None else whole
