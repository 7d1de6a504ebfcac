"""The JSON of a rehearsal: the same bytes for the same inputs; no dates, no wall time."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from perilune.rehearse.outcome import Distribution, Series
from perilune.rehearse.report.published import Published
from perilune.rehearse.report.rehearsal import ATTAINMENT, PoolFacts, Rehearsal

VERSION = 1
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


def document(run: Rehearsal) -> dict[str, Any]:
    """A rehearsal as plain data. Times are seconds, shares are of one; null where nothing was served."""
    found = run.outcome
    return {
        "rehearsal": VERSION,
        "engine": run.engine,
        "plan": {"id": run.plan_id, "model": run.model, "pools": [_pool(pool) for pool in run.pools]},
        "traffic": _traffic(run),
        "router": run.router,
        "seed": found.seed,
        "acceptance": None if run.acceptance is None else _fields(run.acceptance),
        "settings": dict(run.settings),
        "interrupted": found.interrupted,
        "basis": found.basis,
        "basis_says": run.basis_says,
        "error_band": list(found.error_band),
        "gpus": found.gpus,
        "duration_s": found.duration_s,
        **{name: _distribution(getattr(found, name)) for name in LATENCIES},
        "tokens_per_second_per_gpu": found.tokens_per_second_per_gpu,
        "output_tokens_per_second": found.output_tokens_per_second,
        "prompt_tokens": found.prompt_tokens,
        "output_tokens": found.output_tokens,
        "requests": _fields(found.requests),
        "admitted_max": found.admitted_max,
        "admitted_cap": run.cap,
        "admitted_band": None if run.cap_band is None else list(run.cap_band),
        "waits_s": dict(found.waits_s),
        "cache": {"hit_tokens": found.hit_tokens, "prompt_tokens": found.prompt_tokens},
        "slo": _slo(run),
        "replicas": [
            {
                "name": replica.name,
                "role": replica.role,
                "gpus": replica.gpus,
                "admitted_max": replica.admitted_max,
                "completed": replica.completed,
                "busy_share": replica.busy_share,
            }
            for replica in found.replicas
        ],
        "series": _series(found.series),
        "published_cap": run.published_cap,
        "published": [_published(one) for one in run.published],
        "notes": list(found.notes),
    }


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}


def _traffic(run: Rehearsal) -> dict[str, Any]:
    load, replay, talk = run.load, run.load.replay, run.load.talk
    return {
        "kind": load.kind,
        "name": run.outcome.traffic,
        "concurrency": load.concurrency,
        "rate": load.rate,
        "arrival_cv": load.arrival_cv,
        "requests": load.total,
        "isl": load.isl,
        "osl": load.osl,
        "range_ratio": load.range_ratio,
        "images": load.images,
        "image_size": list(load.image_size) if load.images else None,
        "sessions": None if talk is None else _fields(talk),
        "replay": None if replay is None else _fields(replay),
    }


def _pool(pool: PoolFacts) -> dict[str, Any]:
    found = {name: value for name, value in _fields(pool).items() if name != "memory"}
    band = None if pool.cap_band is None else list(pool.cap_band)
    return {**found, "command": list(pool.command), "env": dict(pool.env), "cap_band": band}


def _distribution(of: Distribution) -> dict[str, float | int | None]:
    names = ("mean", "p50", "p90", "p99", "max")
    return {"count": of.count, **{name: getattr(of, name) if of.count else None for name in names}}


def _series(of: Series) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in _fields(of).items()}


def _slo(run: Rehearsal) -> dict[str, Any] | None:
    if run.slo is None:
        return None
    return {**_fields(run.slo), **run.outcome.goodput, "target_share": ATTAINMENT, "met": run.slo_met}


def _published(one: Published) -> dict[str, Any]:
    point, card = one.point, one.card
    return {
        "same_workload": one.same,
        "comparable": one.comparable,
        "differs": list(one.differs),
        "concurrency": point.concurrency,
        "ttft_s": point.ttft_ms / 1000,
        "tpot_s": point.tpot_ms / 1000,
        "tokens_per_second_per_gpu": point.tokens_per_s_per_gpu,
        "engine": card.engine,
        "date": card.date,
        "added": card.added,
        "caveats": list(card.caveats),
        "sources": list(card.sources),
    }


def records(run: Rehearsal) -> bytes:
    """One line of JSON a request, in order of arrival, where they were kept."""
    encoder = msgspec.json.Encoder()
    return b"".join(encoder.encode(record) + b"\n" for record in run.outcome.records)
