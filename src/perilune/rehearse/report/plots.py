"""PNG plots of a rehearsal, drawn by matplotlib without a display. Equal rehearsals give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from perilune.plan.display import printable
from perilune.rehearse.outcome import Distribution, Series
from perilune.rehearse.report import phrases
from perilune.rehearse.report.overtime import busy_by_role, middles, per_second
from perilune.rehearse.report.rehearsal import Rehearsal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN = "#0b5fa5", "#b4530a", "#2f7d32"
DPI: Final = 120
MOST_LANES: Final = 64


def plots(run: Rehearsal) -> dict[str, bytes]:
    """PNG files by name; those that would be empty are left out."""
    import matplotlib as mpl
    from matplotlib.style import context

    with mpl.rc_context(), context("default"):
        made = {name: _png(draw, run) for name, draw in DRAWERS.items()}
    return {name: raw for name, raw in made.items() if raw is not None}


def _png(draw: Callable[[Figure, Rehearsal], bool], run: Rehearsal) -> bytes | None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    if not draw(figure, run):
        return None
    named = f"{printable(phrases.title(run))}; {printable(phrases.traffic_text(run))}"
    shortened = named if len(named) <= 130 else named[:129] + "…"
    figure.suptitle(shortened, fontsize=9, color="#5b6472", parse_math=False)
    raw = io.BytesIO()
    figure.savefig(raw, format="png", metadata={"Software": None, "Description": "predicted by perilune rehearse"})
    return raw.getvalue()


def _latency(figure: Figure, run: Rehearsal) -> bool:
    found = run.outcome
    if not found.ttft_s.cdf and not found.tpot_s.cdf:
        return False
    left, right = figure.subplots(1, 2)
    _curves(left, {"TTFT": found.ttft_s, "E2E": found.e2e_s}, 1, "seconds")
    _curves(right, {"TPOT": found.tpot_s, "ITL": found.itl_s}, 1000, "milliseconds")
    return True


def _curves(axes: Axes, named: dict[str, Distribution], factor: float, unit: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    drawn = {name: of for name, of in named.items() if of.cdf}
    for (name, of), (color, style) in zip(drawn.items(), ((BLUE, "-"), (ORANGE, "--")), strict=False):
        axes.plot(
            [value * factor for value, _ in of.cdf], [part * 100 for _, part in of.cdf], style, c=color, label=name
        )
    positive = [value for of in drawn.values() for value, _ in of.cdf if value > 0]
    if positive and max(positive) > 20 * min(positive):
        axes.set_xscale("log")
        close = max(positive) <= 200 * min(positive)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if close else LogLocator(numticks=5))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 100)
    axes.set_xlabel(unit)
    axes.set_ylabel("% of requests at or below" if factor == 1 else "% at or below")
    _finish(axes)


def _load(figure: Figure, run: Rehearsal) -> bool:
    series = run.outcome.series
    axes = figure.subplots()
    looks = ((BLUE, "-"), (GREEN, ":"))
    for (place, held), (color, style) in zip(reversed(busy_by_role(run.outcome).items()), looks, strict=False):
        _line(axes, series, held, place, color, style)
    _line(axes, series, series.queued, "queued", ORANGE, "--")
    axes.set_ylabel("requests")
    return _over_time(axes, run)


def _pools(figure: Figure, run: Rehearsal) -> bool:
    series = run.outcome.series
    axes = figure.subplots()
    _line(axes, series, [part * 100 for part in series.kv_used], "KV tokens", BLUE, "-")
    _line(axes, series, [part * 100 for part in series.slots_used], "state slots", ORANGE, "--")
    axes.set_ylim(0, 100)
    axes.set_ylabel("% in use")
    return _over_time(axes, run)


def _throughput(figure: Figure, run: Rehearsal) -> bool:
    series = run.outcome.series
    axes = figure.subplots()
    _line(axes, series, per_second(series, series.output_tokens, run.outcome.duration_s), "output", BLUE, "-")
    _line(axes, series, per_second(series, series.prompt_tokens, run.outcome.duration_s), "prefilled", ORANGE, "--")
    axes.set_ylabel("tokens per second")
    return _over_time(axes, run)


def _servers(figure: Figure, run: Rehearsal) -> bool:
    replicas = run.outcome.replicas[:MOST_LANES]
    if not replicas or not run.outcome.series.running:
        return False
    figure.set_size_inches(9, 1.4 + 0.28 * len(replicas))
    axes = figure.subplots()
    most = max((max(one.series.running, default=0.0) for one in replicas), default=0.0) or 1.0
    for row, one in enumerate(replicas):
        width, running = one.series.bin_s, one.series.running
        if running:
            extent = (0.0, width * len(running), row + 0.42, row - 0.42)
            axes.imshow(
                [running], aspect="auto", extent=extent, cmap="Blues", vmin=0, vmax=most, interpolation="nearest"
            )
        down = [(span.start_s, span.end_s - span.start_s) for span in one.spans if span.what == "down"]
        axes.broken_barh(down, (row - 0.42, 0.84), facecolors="#a3181e")
    axes.set_ylim(len(replicas) - 0.5, -0.5)
    axes.set_yticks(range(len(replicas)), [printable(one.name)[:24] for one in replicas], parse_math=False)
    axes.set_xlim(0, run.outcome.duration_s)
    axes.set_xlabel(f"seconds; the darker, the more requests run (up to {most:,.0f})")
    return True


def _line(axes: Axes, of: Series, values: Iterable[float], label: str, color: str, style: str) -> None:
    numbers = list(values)
    if numbers:
        axes.plot(middles(of), numbers, style, c=color, label=label)


def _over_time(axes: Axes, run: Rehearsal) -> bool:
    if not axes.lines:
        return False
    axes.set_xlim(0, run.outcome.duration_s)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    _finish(axes)
    return True


def _finish(axes: Axes) -> None:
    axes.grid(color="#e7e9ed")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


DRAWERS: Final[dict[str, Callable[[Figure, Rehearsal], bool]]] = {
    "latency.png": _latency,
    "load.png": _load,
    "pools.png": _pools,
    "throughput.png": _throughput,
    "servers.png": _servers,
}
"""What draws each file; false where there is nothing to draw."""
