"""A rehearsal as one HTML file: tables that need no script, and interactive charts over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from perilune.plan.display import printable
from perilune.rehearse.outcome import Distribution, Outcome, ReplicaOutcome
from perilune.rehearse.report import phrases
from perilune.rehearse.report.overtime import busy_by_role, middles, per_second
from perilune.rehearse.report.page import page
from perilune.rehearse.report.rehearsal import Rehearsal
from perilune.rehearse.report.text import change, kept, rate, share, short_time

MOST_SPANS = 20_000
"""Steps of all servers together that the page holds: about a megabyte."""

COLUMNS = ("p50", "p90", "p99", "max", "mean")
LATENCY = (
    ("cdf-request", "Time to the first token, and to the last", "share of requests at or below", ""),
    ("cdf-token", "Time per output token", "TPOT is a request's mean; ITL every gap", ""),
)
OVER_TIME = (
    ("load", "Running and queued requests", "means over {bin}; drag to zoom, double-click to go back", ""),
    ("pools", "Both pools", "share in use, KV tokens and state slots", ""),
    ("throughput", "Throughput", "tokens per second, cache hits not counted as prefilled", "wide"),
)


def html_report(run: Rehearsal) -> bytes:
    """The page, UTF-8. Equal rehearsals give equal bytes."""
    found = run.outcome
    title = f"Rehearsal of {printable(phrases.title(run))}"
    parts = [
        "<main>",
        f'<header><h1>{escape(title)}</h1><button id="theme" type="button">Dark</button></header>',
        _paragraph(phrases.pools_text(run)),
        _paragraph(phrases.traffic_text(run)),
        '<div class="trust">',
        _paragraph(phrases.trust_text(run)),
        _paragraph(phrases.acceptance_text(run)),
        "</div>",
        _paragraph("Interrupted: this is what had happened until then.", "bad") if found.interrupted else "",
        _tiles(run),
        *(_paragraph(f"{role or 'admitted'}: {text}", "soft") for role, text in phrases.admitted(run)),
        _list(found.notes),
        "<h2>Latency</h2>",
        _table(("", *COLUMNS), _latencies(found)),
        _list(phrases.remarks(run)),
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>",
        *_latency_figures(found),
        *_time_figures(found),
        *_waits(found),
        *_published(run),
        *_memory(run),
        *_made_of(run),
        "</main>",
    ]
    return page(title, "\n".join(part for part in parts if part), chart_data(found), "report.js")


def chart_data(found: Outcome) -> dict[str, Any]:
    """What the page's script draws: columns of numbers of six figures."""
    return {
        "duration": _six(found.duration_s),
        "cdf": {
            "ttft": _curve(found.ttft_s),
            "tpot": _curve(found.tpot_s),
            "itl": _curve(found.itl_s),
            "e2e": _curve(found.e2e_s),
        },
        "series": _columns(found),
        "places": list(busy_by_role(found)),
        "replicas": [_lane(replica, MOST_SPANS // len(found.replicas)) for replica in found.replicas],
    }


def _columns(found: Outcome) -> dict[str, list[float]]:
    of, duration_s = found.series, found.duration_s
    return {
        "t": [_six(middle) for middle in middles(of)],
        **{place: [_six(value) for value in values] for place, values in busy_by_role(found).items()},
        "queued": [_six(value) for value in of.queued],
        "kv_used": [_six(value * 100) for value in of.kv_used],
        "slots_used": [_six(value * 100) for value in of.slots_used],
        "prompt": [_six(rate) for rate in per_second(of, of.prompt_tokens, duration_s)],
        "output": [_six(rate) for rate in per_second(of, of.output_tokens, duration_s)],
    }


def _lane(replica: ReplicaOutcome, most: int) -> dict[str, Any]:
    """Its first `most` steps, and every time that it was down."""
    spans = [span for index, span in enumerate(replica.spans) if index < most or span.what == "down"]
    return {
        "name": printable(replica.name),
        "bin": replica.series.bin_s,
        "running": [_six(value) for value in replica.series.running],
        "queued": [_six(value) for value in replica.series.queued],
        "completed": replica.completed,
        "admitted_max": replica.admitted_max,
        "busy": _six(replica.busy_share * 100),
        "spans": [[_six(s.start_s, 9), _six(s.end_s, 9), s.what, s.requests, s.tokens] for s in spans],
    }


def _curve(of: Distribution) -> list[list[float]]:
    return [[_six(value) for value, _ in of.cdf], [_six(part) for _, part in of.cdf]]


def _six(value: float, figures: int = 6) -> float:
    return float(f"{value:.{figures}g}")


def _latency_figures(found: Outcome) -> Iterable[str]:
    yield '<div class="grid">'
    for figure, curve in zip(LATENCY, (found.ttft_s.cdf, found.itl_s.cdf), strict=True):
        if curve:
            yield _figure(*figure)
    yield "</div>"


def _time_figures(found: Outcome) -> Iterable[str]:
    if not found.series.running:
        return
    yield '<h2>Over time</h2><div class="grid">'
    wide = short_time(found.series.bin_s)
    for id_, title, more, style in OVER_TIME:
        yield _figure(id_, title, more.format(bin=wide), style)
    yield _lanes(found)
    yield "</div>"


def _paragraph(text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f"<p{named}>{escape(kept(text))}</p>" if text else ""


def _tiles(run: Rehearsal) -> str:
    found = run.outcome
    ended = found.requests
    lost = [f"{number:,} {word}" for number, word in ((ended.rejected, "rejected"), (ended.unfinished, "unfinished"))]
    tiles = [
        ("TTFT, median", _time(found.ttft_s, "p50"), f"p90 {_time(found.ttft_s, 'p90')}"),
        ("TPOT, median", _time(found.tpot_s, "p50"), f"p90 {_time(found.tpot_s, 'p90')}"),
        (f"tokens/s per {run.pools[0].unit}", rate(found.tokens_per_second_per_gpu), "input + output"),
        ("output tokens/s", rate(found.output_tokens_per_second), "the whole fleet"),
        ("requests completed", f"{ended.completed:,}", ", ".join(lost)),
        ("at once, at most", f"{found.admitted_max:,}", f"the ledger admits {run.cap:,}"),
    ]
    if found.prompt_tokens:
        hits = share(found.hit_tokens / found.prompt_tokens) if found.hit_tokens else "none"
        tiles.append(("cache hits", hits, f"of {found.prompt_tokens:,} prompt tokens"))
    if run.slo is not None:
        met = "met" if run.slo_met else "missed"
        good = share(run.goodput) if run.goodput is not None else "none"
        tiles.append((f"within the SLO, {met}", good, phrases.slo_text(run.slo)))
    cells = (
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b><span>{escape(more)}</span></div>'
        for name, value, more in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _time(of: Distribution, name: str) -> str:
    return short_time(getattr(of, name)) if of.count else "–"


def _latencies(found: Outcome) -> Iterable[tuple[str, ...]]:
    for name in ("ttft", "tpot", "itl", "e2e"):
        of = getattr(found, f"{name}_s")
        yield (name.upper(), *(_time(of, column) for column in COLUMNS))


def _figure(id_: str, title: str, more: str, style: str) -> str:
    return (
        f'<figure class="{style}"><figcaption>{escape(title)} <span>{escape(more)}</span></figcaption>'
        f'<div class="plot" id="{id_}" role="img" aria-label="{escape(title)}: {escape(more)}. '
        'The same data follows as a table."></div></figure>'
    )


def _lanes(found: Outcome) -> str:
    kept = ", with the first of its steps in the lower half" if any(one.spans for one in found.replicas) else ""
    return (
        '<figure class="wide"><figcaption>Servers <span>a lane each: the darker, the more requests run'
        f"{kept}</span></figcaption>"
        '<div class="keys" id="lanes-keys"></div><div class="plot" id="lanes" role="img" '
        'aria-label="How many requests each server ran over time."></div>'
        '<div class="reading" id="lanes-reading"></div></figure>'
    )


def _waits(found: Outcome) -> Iterable[str]:
    spent = phrases.waits(found)
    if not spent:
        return
    each = max(found.requests.completed + found.requests.unfinished, 1)
    rows = "".join(
        f'<tr><th scope="row">{escape(cause)}, {short_time(seconds / each)} a request ({share(part)})</th>'
        f'<td><div style="width:{part * 100:.3f}%"></div></td></tr>'
        for cause, seconds, part in spent
    )
    yield "<h2>What requests waited for</h2>"
    yield _paragraph("Shares of the time from arrival to the last token, all requests together.", "soft")
    yield f'<table class="bars"><tbody>{rows}</tbody></table>'


def _published(run: Rehearsal) -> Iterable[str]:
    if not run.published:
        return
    rows = []
    for one in run.published:
        point = one.point
        against = phrases.against(one, run.outcome) if phrases.compared(one, run.outcome) else ()
        beside = [change(ratio) for ratio in against]
        figures = (
            short_time(point.ttft_ms / 1000),
            short_time(point.tpot_ms / 1000),
            f"{point.tokens_per_s_per_gpu:,.0f}",
        )
        rows.append((str(point.concurrency), *figures, f"SGLang {one.card.engine}", ", ".join(beside) or "–"))
    yield "<h2>Published of this recipe, measured</h2>"
    yield _paragraph(f"Not predicted: {phrases.method_text()}.", "soft")
    yield _paragraph(phrases.differs_text(run.published))
    heads = ("concurrency", "TTFT", "TPOT", "tokens/s per GPU", "engine", "predicted here, against it")
    yield _table(heads, rows)
    yield _list(dict.fromkeys(caveat for one in run.published for caveat in one.card.caveats))


def _memory(run: Rehearsal) -> Iterable[str]:
    """The ledger of each pool's fullest GPU, and how many requests it admits within what band."""
    for pool in run.pools:
        if not pool.memory:
            continue
        whose = f" of the {pool.role} pool" if len(run.pools) > 1 else ""
        yield f"<h2>Memory{escape(whose)}</h2>"
        yield _paragraph(phrases.capacity_text(pool))
        rows = [(line.label, f"{line.gib:,.2f}", line.formula) for line in pool.memory]
        yield _table(("part", "GiB", "from"), rows, texts=2)


def _made_of(run: Rehearsal) -> Iterable[str]:
    yield "<h2>What was rehearsed</h2>"
    rows = [
        ("plan", f"{run.plan_id}, {run.engine}"),
        *((f"{pool.role} command", " ".join((*_env(pool.env), *pool.command))) for pool in run.pools),
        *run.settings.items(),
    ]
    yield "<dl>"
    for name, text in rows:
        yield f"<dt>{escape(printable(name))}</dt><dd><code>{escape(printable(text))}</code></dd>"
    yield "</dl>"


def _env(env: Any) -> list[str]:
    return [f"{name}={text}" for name, text in env.items()]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 0) -> str:
    """A table whose column number `texts` and those after it hold text; none where it is 0."""

    def side(at: int) -> str:
        return ' class="text"' if texts and at >= texts else ""

    head = "".join(f'<th scope="col"{side(at)}>{escape(name)}</th>' for at, name in enumerate(heads))
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{side(at)}>{escape(printable(cell))}</td>" for at, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(printable(text))}</li>" for text in texts)
    return f'<ul class="soft">{items}</ul>' if items else ""
