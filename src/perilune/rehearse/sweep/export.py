"""A sweep for programs, as a page and as a picture. Equal sweeps give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from perilune.plan.display import printable
from perilune.rehearse.report.page import asset
from perilune.rehearse.report.text import short_time
from perilune.rehearse.sweep.frontier import Swept, series
from perilune.rehearse.sweep.store import plain

VERSION: Final = 1
DPI: Final = 120
WIDE, HIGH, EDGE = 860, 420, 56
"""The picture of the page, in pixels, and the room for its axes."""

COLORS: Final = ("#0b5fa5", "#b4530a", "#2f7d32", "#8e24aa", "#c62828", "#00838f", "#5d4037", "#616161")

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{styles}</style>
</head>
<body><main>
<h1>{title}</h1>
{body}
</main></body>
</html>
"""


def sweep_document(found: Sequence[Swept], missing: int) -> dict[str, Any]:
    """The JSON of a sweep: points in the order of the grid, and which of them are on the frontier."""
    return {
        "sweep": VERSION,
        "interrupted": missing > 0,
        "points": [
            {
                "point": plain(one.point),
                "tokens_per_second_per_user": one.interactivity,
                "frontier": one.best,
                **one.result,
            }
            for one in found
        ],
    }


def frontier_png(found: Sequence[Swept]) -> bytes:
    """The frontier as a PNG, a line for each deployment."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.style import context

    with mpl.rc_context(), context("default"):
        figure = Figure(figsize=(9, 5), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for index, (name, spots) in enumerate(_curves(found)):
            axes.plot([x for x, _, _ in spots], [y for _, y, _ in spots], "o-", c=_color(index), label=printable(name))
        best = sorted((x, y) for _, spots in _curves(found) for x, y, one in spots if one.best)
        axes.plot([x for x, _ in best], [y for _, y in best], "--", c="#999999", label="frontier", zorder=0)
        axes.set(
            xlabel="tokens/s per user", ylabel="tokens/s per GPU, input and output", xlim=(0, None), ylim=(0, None)
        )
        for text in axes.legend(fontsize=8).get_texts():
            text.set_parse_math(False)
        raw = io.BytesIO()
        figure.savefig(raw, format="png", metadata={"Software": None, "Description": "predicted by perilune sweep"})
        return raw.getvalue()


def sweep_html(found: Sequence[Swept], missing: int) -> bytes:
    """The frontier and all points as one page that needs no network and no script."""
    parts = [
        "<p>Predicted, not measured. Filled points are on the frontier: no other point is better in both.</p>",
        _picture(found),
        "<p>Interrupted: some points are still to do.</p>" if missing else "",
    ]
    for index, group in enumerate(series(found)):
        parts.append(f'<h2 style="color:{_color(index)}">{escape(printable(group.name))}</h2>')
        rows = "".join(_row(one) for one in group.points if one.refused is None)
        heads = (
            "load",
            "TTFT p50",
            "TPOT p50",
            "tokens/s per user",
            "tokens/s per GPU",
            "at once",
            "the ledger admits",
            "GPUs",
            "frontier",
        )
        if rows:
            parts.append(f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>")
        for why in sorted({one.refused for one in group.points if one.refused}):
            parts.append(f"<p>Refused: {escape(printable(why))}</p>")
    body = "\n".join(part for part in parts if part)
    return PAGE.format(title="Sweep: throughput against interactivity", styles=asset("page.css"), body=body).encode()


Spots = list[tuple[float, float, Swept]]


def _curves(found: Sequence[Swept]) -> list[tuple[str, Spots]]:
    curves = []
    for group in series(found):
        spots = [
            (one.interactivity, one.throughput, one)
            for one in group.points
            if one.interactivity is not None and one.throughput is not None
        ]
        curves.append((group.name, sorted(spots, key=lambda spot: spot[:2])))
    return curves


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _picture(found: Sequence[Swept]) -> str:
    curves = _curves(found)
    spots = [spot for _, each in curves for spot in each]
    if not spots:
        return "<p>No point was served.</p>"
    right, top = max(x for x, _, _ in spots) * 1.05, max(y for _, y, _ in spots) * 1.05

    def at(x: float, y: float) -> tuple[str, str]:
        return f"{EDGE + x / right * (WIDE - EDGE - 8):.1f}", f"{(HIGH - EDGE) * (1 - y / top) + 8:.1f}"

    drawn = []
    for step in range(5):
        left, up = at(right * step / 4, top * step / 4)
        floor = HIGH - EDGE + 8
        anchor = "end" if step == 4 else "middle"  # the last one ends with the picture
        drawn.append(f'<text x="{left}" y="{floor + 18}" text-anchor="{anchor}">{right * step / 4:,.0f}</text>')
        drawn.append(f'<text x="{EDGE - 6}" y="{float(up) + 4:.1f}" text-anchor="end">{top * step / 4:,.0f}</text>')
        drawn.append(f'<path d="M{EDGE} {up}H{WIDE - 8}" stroke="currentColor" stroke-opacity="0.15"/>')
    for index, (_, each) in enumerate(curves):
        color = _color(index)
        line = " ".join(",".join(at(x, y)) for x, y, _ in each)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{color}"/>')
        for x, y, one in each:
            left, up = at(x, y)
            fill = color if one.best else "none"
            told = escape(f"{_load(one)}: {x:,.1f} tokens/s per user, {y:,.0f} per GPU")
            drawn.append(
                f'<circle cx="{left}" cy="{up}" r="5" fill="{fill}" stroke="{color}"><title>{told}</title></circle>'
            )
    drawn.append(f'<text x="{WIDE / 2:.0f}" y="{HIGH - 4}" text-anchor="middle">tokens/s per user</text>')
    drawn.append(f'<text x="12" y="{HIGH / 2:.0f}" transform="rotate(-90 12 {HIGH / 2:.0f})">tokens/s per GPU</text>')
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="frontier" fill="currentColor" font-size="12">'
        f"{''.join(drawn)}</svg>"
    )


def _load(one: Swept) -> str:
    load = one.point.load
    if load.concurrency is not None:
        return f"N={load.concurrency}"
    return "trace" if load.rate is None else f"{load.rate:g}/s"


def _row(one: Swept) -> str:
    result = one.result
    cells = (
        _load(one),
        _time(result["ttft_s"]["p50"]),
        _time(result["tpot_s"]["p50"]),
        "-" if one.interactivity is None else f"{one.interactivity:,.1f}",
        "-" if one.throughput is None else f"{one.throughput:,.0f}",
        f"{result['admitted_max']:,}{', fewer than asked' if one.short else ''}",
        f"{result['admitted_cap']:,}" if one.unsure is None else one.unsure,
        f"{result['gpus']:,}",
        "yes" if one.best else "",
    )
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else short_time(seconds)
