"""A sweep on 80 columns: the frontier as a plot, and a table of all points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from perilune.facts.hardware import platform
from perilune.plan.display import counted, printable
from perilune.rehearse.report.summary import Line
from perilune.rehearse.report.text import WIDTH, short_time, wrapped
from perilune.rehearse.sweep.frontier import Series, Swept, series

COLUMNS: Final = 68
ROWS: Final = 15
SAID: Final = 6
HEAD: Final = (
    f"{'':2}{'load':>9}{'TTFT p50':>11}{'TPOT p50':>11}{'tok/s/user':>12}{'tok/s/GPU':>11}{'at once':>10}{'admits':>9}"
)


def sweep_lines(found: Sequence[Swept], missing: int) -> Iterator[Line]:
    """What a person reads; `missing` counts the points that were not reached."""
    groups = series(found)
    yield from _plot(groups)
    for group in groups:
        yield Line("")
        first, *others = wrapped(f"{group.letter}  {group.name}: {_sizes(group)}", WIDTH)
        yield Line(first, "head")
        for text in others:
            yield Line(f"   {text}", "head")
        refused = {one.refused for one in group.points if one.refused}
        if any(one.refused is None for one in group.points):
            yield Line(HEAD, "dim")
        for one in group.points:
            if one.refused is None:
                yield Line(_row(one), "good" if one.best else "")
        for why in sorted(refused):
            for text in wrapped(f"refused: {why}", WIDTH, "   "):
                yield Line(text, "bad")
    yield Line("")
    if any(one.short for one in found):
        told = "<  The ledger admits fewer than N: the others wait, which is in their TTFT."
        yield from (Line(text, "dim") for text in wrapped(told, WIDTH))
    unsure = list(dict.fromkeys(one.unsure for one in found if one.unsure))
    if unsure:
        told = (
            f"~  Within the error of predicted memory {', '.join(unsure[:SAID])}{' and so on' * (len(unsure) > SAID)}."
        )
        yield from (Line(text, "dim") for text in wrapped(told, WIDTH))
    yield from (Line(text, "dim") for text in wrapped(_trust(found), WIDTH))
    if missing:
        yield Line(f"Interrupted: {counted(missing, 'point')} still to do.", "bad")


def _plot(groups: Sequence[Series]) -> Iterator[Line]:
    """Capital letters are on the frontier."""
    spots = [
        (one.interactivity, one.throughput, group.letter.upper() if one.best else group.letter)
        for group in groups
        for one in group.points
        if one.interactivity is not None and one.throughput is not None
    ]
    if not spots:
        yield Line("No point was served.", "bad")
        return
    right, top = max(x for x, _, _ in spots), max(y for _, y, _ in spots)
    field = [[" "] * COLUMNS for _ in range(ROWS)]
    for x, y, mark in sorted(spots, key=lambda spot: spot[2].isupper()):
        row = ROWS - 1 - round(y / top * (ROWS - 1))
        field[row][round(x / right * (COLUMNS - 1))] = mark
    yield Line("Tokens/s per GPU (up) against tokens/s per user (right)", "head")
    for index, cells in enumerate(field):
        label = f"{top * (ROWS - 1 - index) / (ROWS - 1):,.0f}" if index in (0, ROWS // 2) else ""
        yield Line(f"{label:>9} |{''.join(cells).rstrip()}".rstrip())
    yield Line(f"{'0':>9} +{'-' * COLUMNS}")
    yield Line(f"{'':11}0{f'{right:,.0f}':>{COLUMNS - 1}}")
    yield Line("CAPITALS are on the frontier: no other point is better in both.", "dim")


def _row(one: Swept) -> str:
    result, load = one.result, one.point.load
    asked = (
        f"N={load.concurrency}"
        if load.concurrency is not None
        else "trace"
        if load.rate is None
        else f"{load.rate:g}/s"
    )
    user = "-" if one.interactivity is None else f"{one.interactivity:,.1f}"
    gpu = "-" if one.throughput is None else f"{one.throughput:,.0f}"
    cap = result["admitted_cap"]
    once = f"{result['admitted_max']:,}{'<' if one.short else ''}"
    mark = "*" if one.best else ""
    return (
        f"{mark:2}{asked:>9}{_time(result['ttft_s']['p50']):>11}{_time(result['tpot_s']['p50']):>11}{user:>12}{gpu:>11}"
        f"{once:>10}{f'{cap:,}' + ('~' if one.unsure else ''):>9}"
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else short_time(seconds)


def _sizes(group: Series) -> str:
    gpus = sorted({one.result["gpus"] for one in group.points if one.refused is None})
    hardware = group.points[0].point.choice.get("hardware")  # of a plan file it is not known here
    unit = "GPU" if hardware is None else platform(str(hardware)).unit
    return " or ".join(counted(number, unit) for number in gpus) or "not served"


def _trust(found: Sequence[Swept]) -> str:
    """How far to believe it, in a sentence."""
    bases = sorted({one.result["basis"] for one in found if one.refused is None})
    if not bases:
        return "Nothing was predicted."
    bands = [one.result["error_band"] for one in found if one.refused is None]
    low, high = min(band[0] for band in bands), max(band[1] for band in bands)
    return printable(
        f"Predicted, not measured: step times are {' and '.join(bases)}, and a time may be {low:.2f} to {high:.2f} "
        "times what is shown. The band is of medians."
    )
