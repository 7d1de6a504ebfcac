"""Two saved rehearsals side by side: ratios of what users feel, and what differs in what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perilune.plan.display import printable
from perilune.plan.published import flags_of
from perilune.rehearse.report.document import LATENCIES, VERSION
from perilune.rehearse.report.phrases import CAUSES
from perilune.rehearse.report.saved import Cache, Saved, SavedPool, read_saved
from perilune.rehearse.report.summary import Line
from perilune.rehearse.report.text import change, short_time, wrapped

PERCENTILES = ("p50", "p90", "p99", "mean")


def comparison(a: Path, b: Path) -> dict[str, Any]:
    """Every figure of both files with the ratio of the second to the first (null without one), and what differs."""
    first, second = read_saved(a), read_saved(b)
    return {
        "comparison": VERSION,
        "a": str(a),
        "b": str(b),
        "figures": {
            name: {"a": one, "b": other, "ratio": _ratio(one, other)} for name, one, other in _figures(first, second)
        },
        "differs": {name: {"a": one, "b": other} for name, one, other in _differences(first, second)},
        "cautions": list(_cautions(first, second)),
    }


def comparison_lines(document: Mapping[str, Any]) -> Iterator[Line]:
    """The comparison in 80 columns."""
    yield from (Line(text, "head") for text in wrapped(f"A {document['a']}", 80))
    yield from (Line(text, "head") for text in wrapped(f"B {document['b']}", 80))
    yield Line("")
    yield Line(f"{'':<26}{'A':>16}{'B':>16}{'B to A':>12}", "head")
    for name, pair in document["figures"].items():
        cells = [_shown(name, pair[side]) for side in ("a", "b")]
        same = pair["a"] == pair["b"]
        ratio = "same" if same else "" if pair["ratio"] is None else change(pair["ratio"])
        yield Line(f"{_named(name):<26}{cells[0]:>16}{cells[1]:>16}{ratio:>12}")
    yield Line("")
    yield Line("What differs" if document["differs"] else "Nothing differs in what was asked.", "head")
    for name, pair in document["differs"].items():
        yield from (Line(line) for line in wrapped(f"{name}: {_told(pair['a'])} → {_told(pair['b'])}", 80, "- "))
    for caution in document["cautions"]:
        yield from (Line(line, "bad") for line in wrapped(caution, 80))


def _figures(a: Saved, b: Saved) -> Iterator[tuple[str, float | None, float | None]]:
    for latency in LATENCIES:
        one, other = getattr(a, latency), getattr(b, latency)
        for name in PERCENTILES:
            yield f"{latency}.{name}", getattr(one, name), getattr(other, name)
    for name in ("tokens_per_second_per_gpu", "output_tokens_per_second", "duration_s", "gpus", "admitted_max"):
        yield name, getattr(a, name), getattr(b, name)
    for name in ("completed", "rejected", "retracted", "unfinished"):
        yield f"requests.{name}", getattr(a.requests, name), getattr(b.requests, name)
    yield "cache.hit_share", _hits(a.cache), _hits(b.cache)
    for cause in sorted({*a.waits_s, *b.waits_s}):
        yield f"waits_s.{cause}", a.waits_s.get(cause, 0.0), b.waits_s.get(cause, 0.0)
    if a.slo is not None and b.slo is not None and {"share"} <= a.slo.keys() & b.slo.keys():
        yield "slo.share", a.slo["share"], b.slo["share"]


def _hits(cache: Cache) -> float | None:
    return cache.hit_tokens / cache.prompt_tokens if cache.prompt_tokens else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return other / one if one and other is not None else None


def _differences(a: Saved, b: Saved) -> Iterator[tuple[str, Any, Any]]:
    for name, one, other in _settings(a, b):
        if one != other:
            yield name, one, other


def _settings(a: Saved, b: Saved) -> Iterator[tuple[str, Any, Any]]:
    for name in ("engine", "router", "seed", "basis"):
        yield name, getattr(a, name), getattr(b, name)
    yield from _pairs("acceptance", a.acceptance or {}, b.acceptance or {})
    yield "error_band", list(a.error_band), list(b.error_band)
    yield "model", a.plan.model, b.plan.model
    yield from _pairs("traffic", a.traffic, b.traffic)
    yield from _pairs("settings", a.settings, b.settings)
    yield from _pairs("slo", _targets(a), _targets(b))
    pools, others = ({pool.role: pool for pool in saved.plan.pools} for saved in (a, b))
    for role in dict.fromkeys((*pools, *others)):
        one, other = pools.get(role), others.get(role)
        if one is None or other is None:
            yield f"{role} pool", one and _about(one), other and _about(other)
            continue
        for name in ("platform", "recipe", "quant", "spec", "shape", "gpus", "replicas", "cap"):
            yield f"{role}.{name}", getattr(one, name), getattr(other, name)
        yield from _pairs(f"{role}.env", one.env, other.env)
        yield from _pairs(f"{role}.command", flags_of(one.command), flags_of(other.command))


def _pairs(prefix: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys((*a, *b)):
        yield f"{prefix}.{name}", a.get(name), b.get(name)


def _targets(saved: Saved) -> dict[str, Any]:
    slo = saved.slo or {}
    return {name: slo.get(name) for name in ("ttft_s", "tpot_s")}


def _about(pool: SavedPool) -> str:
    return f"{pool.replicas} × {pool.gpus} {pool.platform}, {pool.shape}"


def _cautions(a: Saved, b: Saved) -> Iterator[str]:
    if a.interrupted or b.interrupted:
        which = " and ".join(name for name, saved in (("A", a), ("B", b)) if saved.interrupted)
        yield f"{which} was interrupted: its figures are of the part that ran."
    if a.traffic != b.traffic:
        yield "The traffic differs, so the figures are not like for like."
    elif a.seed != b.seed:
        yield "The seeds differ: part of a small difference is chance."
    if a.basis != b.basis or a.error_band != b.error_band:
        yield "The step times rest on different ground: a difference inside their error bands means nothing."


def _named(name: str) -> str:
    known = {
        "tokens_per_second_per_gpu": "tokens/s per GPU",
        "output_tokens_per_second": "output tokens/s",
        "duration_s": "duration",
        "gpus": "GPUs",
        "admitted_max": "admitted at once",
        "cache.hit_share": "cache hits",
        "slo.share": "within the SLO",
    }
    if name in known:
        return known[name]
    group, _, part = name.partition(".")
    text = part.replace("_", " ")
    if group in LATENCIES:
        return f"{group.removesuffix('_s').upper()} {text}"
    return f"waited: {CAUSES.get(part, text)}" if group == "waits_s" else text


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    group = name.partition(".")[0]
    if group in LATENCIES or group in ("duration_s", "waits_s"):
        return short_time(value)
    if name in ("cache.hit_share", "slo.share"):
        return f"{value * 100:.1f} %"
    return f"{value:,.0f}"


def _told(value: Any) -> str:
    if value is None:
        return "none"
    return printable(value if isinstance(value, str) else msgspec.json.encode(value).decode()) or "set"
