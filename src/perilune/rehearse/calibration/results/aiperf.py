"""`profile_export_aiperf.json` of aiperf. Source: aiperf 0.13 common/models/export_models.py and config/phases.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perilune.errors import UnusableInput
from perilune.rehearse.calibration.results.result import Entry, Result, loop

MARKS = ("request_count", "input_config")
TOOL = "aiperf"
UNITS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def result(entry: Entry) -> Result:
    """The run of an export; raises UnusableInput naming a field that cannot be used.

    aiperf's `inter_token_latency` is that of a request on average: what is called TPOT elsewhere.
    """
    if entry.values.get("is_complete") is False or entry.values.get("was_cancelled") is True:
        raise UnusableInput("The run did not complete.", where=entry.where)
    concurrency, rate = loop(entry, *_load(entry))
    tokens = round(entry.inner("output_sequence_length").number("avg"))
    return Result(
        source=entry.where,
        tool=TOOL,
        concurrency=concurrency,
        rate=rate,
        requests=round(entry.inner("request_count").number("avg")),
        isl=round(entry.inner("input_sequence_length").number("avg")),
        osl=tokens,
        range_ratio=1.0,
        ttft_s=_median_s(entry, "time_to_first_token"),
        tpot_s=_median_s(entry, "inter_token_latency") if tokens > 1 else None,
        tokens_per_s=_throughput(entry),
    )


def _load(entry: Entry) -> tuple[float | None, float | None]:
    """(concurrency, rate) of the profiling phase; of exports before phases, those of `loadgen`."""
    config = entry.inner("input_config")
    phases: Any = config.values.get("phases")
    if not isinstance(phases, list):
        old = config.inner("loadgen")
        return old.maybe("concurrency"), old.maybe("request_rate")
    profiling = [
        Entry(phase, f"{config.where}.phases")
        for phase in phases
        if isinstance(phase, Mapping) and "profiling" in (phase.get("kind"), phase.get("name"))
    ]
    if len(profiling) != 1:
        raise UnusableInput(f"The run has {len(profiling)} profiling phases, not one.", where=config.where)
    phase = profiling[0]
    if phase.text("type") == "concurrency":
        return phase.maybe("concurrency") or 1.0, None
    if phase.text("type") == "poisson":
        return phase.maybe("concurrency"), phase.maybe("rate")
    raise UnusableInput(
        f"A phase of type {phase.text('type')[:40]!r} cannot be repeated.",
        where=phase.where,
        fix="Measure with --concurrency or with Poisson arrivals.",
    )


def _median_s(entry: Entry, name: str) -> float:
    metric = entry.inner(name)
    unit = metric.text("unit")
    if unit not in UNITS:
        raise UnusableInput(f"{name} is in {unit[:20]!r}, which is no unit of time.", where=metric.where)
    return metric.number("p50") * UNITS[unit]


def _throughput(entry: Entry) -> float:
    """Input and output tokens per second: aiperf's own sum, else the output's and the input's in proportion."""
    if entry.values.get("total_token_throughput") is not None:
        return entry.inner("total_token_throughput").number("avg")
    got = entry.inner("output_token_throughput").number("avg")
    isl = entry.inner("input_sequence_length").number("avg")
    return got * (1 + isl / entry.inner("output_sequence_length").number("avg"))
