"""The memory ledger as a person reads it: a bar, aligned lines, the result in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from perilune.cli.output import GIB, WIDTH, gib, table
from perilune.plan.compose.ratio import shown
from perilune.plan.memory import Basis, Binds, Figure, Ledger
from perilune.plan.memory.calculator import read_calculator

if TYPE_CHECKING:
    from perilune.plan.memory import Workload

GROUPS = (
    ("context", "contexts, NCCL", "░", "bright_black"),
    ("weights", "weights", "█", "blue"),
    ("draft_weights", "draft weights", "▓", "cyan"),
    ("multimodal", "multimodal", "▒", "magenta"),
    ("state", "state pool", "█", "green"),
    ("kv", "KV pool", "█", "yellow"),
    ("nobody", "in no budget", "▒", "red"),
    ("graphs", "graphs, activations", "·", "bright_black"),
)
BINDS = {
    Binds.STATE: "the KDA state pool binds",
    Binds.KV: "the KV pool binds",
    Binds.ASKED: "the request limit binds",
}
FORMULA = 44  # columns for a formula; `explain` prints it whole


def grouped(lines: Iterable[Figure]) -> dict[str, int]:
    """Bytes of each part of the bar; what a plan leaves over joins the graphs and activations."""
    sums = dict.fromkeys((name for name, *_ in GROUPS), 0)
    for line in lines:
        if isinstance(line.value, int):
            part = line.name.split(".")[0].removesuffix("_other")
            sums["graphs" if part in ("slack", "rest") else part] += line.value
    return sums


def bar(ledger: Ledger, stage: int = 0, width: int = WIDTH) -> Text:
    """One GPU's memory drawn to scale, one mark per part."""
    sums = grouped(ledger.lines(stage))
    total = sum(size for size in sums.values() if size > 0) or 1
    text, filled, marks = Text(), 0.0, 0
    for name, _, mark, style in GROUPS:
        filled += max(sums[name], 0) / total * width
        count = max(round(filled) - marks, 1 if sums[name] > total // 200 else 0)
        text.append(mark * min(count, width - marks), style=style)
        marks = min(marks + count, width)
    return text


def legend(ledger: Ledger, stage: int = 0) -> Text:
    """What the marks of the bar stand for, with GiB, on lines that fit."""
    sums = grouped(ledger.lines(stage))
    text, column = Text(), 0
    for name, label, mark, style in GROUPS:
        if not sums[name]:
            continue
        entry = f"{mark} {label} {gib(sums[name], 1)}"
        if column:
            wraps = column + 2 + len(entry) > WIDTH
            text.append("\n" if wraps else "  ")
            column = 0 if wraps else column + 2
        text.append(mark, style=style).append(entry[1:])
        column += len(entry)
    return text


def print_ledger(console: Console, ledger: Ledger, *, every_line: bool) -> None:
    """The bar of each distinct PP stage, and with `every_line` each line of its ledger."""
    for stage in _distinct(ledger):
        where = "one GPU" if len(ledger.stages) == 1 else f"one GPU of PP stage {stage}"
        console.print(f"Memory of {where}, {total_gib(ledger):.2f} GiB ({basis_text(ledger)})", style="bold")
        console.print(bar(ledger, stage))
        console.print(legend(ledger, stage))
        if every_line:
            console.print(_line_table(ledger.lines(stage)))


def _distinct(ledger: Ledger) -> Sequence[int]:
    """The fullest stage, and the emptiest where they differ."""
    if not ledger.stages:
        return ()
    fullest = min(ledger.stages, key=lambda stage: stage.free_gib)
    emptiest = max(ledger.stages, key=lambda stage: stage.free_gib)
    return (fullest.index,) if fullest.free_gib == emptiest.free_gib else (fullest.index, emptiest.index)


def _line_table(lines: Sequence[Figure]) -> object:
    marks = {Basis.EXACT: "", Basis.PREDICTED: "~", Basis.PUBLISHED: "p"}
    rows = []
    for line in lines:
        size = line.value if isinstance(line.value, int) else 0
        shown = line.formula if len(line.formula) <= FORMULA else line.formula[: FORMULA - 1] + "…"
        rows.append((line.label, gib(size), marks[line.basis], shown))
    return table(("part", "GiB", "", "from"), rows, right=(1,))


def basis_text(ledger: Ledger) -> str:
    """How far to trust the figures."""
    return "exact for these boot-log figures" if ledger.basis is Basis.EXACT else "predicted, no boot log given"


def verdict(ledger: Ledger) -> str:
    """What is admitted and what decides it, in one sentence."""
    sizing, inputs = ledger.sizing, ledger.inputs
    if sizing is None or inputs is None or ledger.allocation_error:
        return f"Does not boot: {ledger.error or ledger.allocation_error}"
    per = f" ({sizing.requests} on each of {inputs.attn_dp} attention-DP workers)" if inputs.attn_dp > 1 else ""
    text = f"Admits {ledger.admitted} requests at once{per}; {BINDS[sizing.binds]}."
    found = ledger.requests_range
    if found and found.low != found.high:
        text += f" Between {found.low * inputs.attn_dp} and {found.high * inputs.attn_dp} within the error band."
    return text


def result_rows(ledger: Ledger, load: Workload | None) -> list[tuple[str, str, str]]:
    """The results: name, value, how it came about."""
    sizing, inputs = ledger.sizing, ledger.inputs
    if sizing is None or inputs is None:
        return []
    rows = [("max_running_requests", f"{sizing.requests:,}", BINDS[sizing.binds])]
    if sizing.slots is not None:
        rows.append(
            (
                "max_mamba_cache_size",
                f"{sizing.slots:,}",
                f"state slots at {inputs.slots_per_request} per request: "
                f"{sizing.slots // inputs.slots_per_request} requests",
            )
        )
    logical = f"; {sizing.logical_tokens:,} tokens over DCP {inputs.dcp}" if inputs.dcp > 1 else ""
    rows.append(("max_total_num_tokens", f"{sizing.tokens:,}", f"KV rows a rank{logical}"))
    if load is not None:
        rows.append(("requests of this length", f"{load.by_kv:,}", f"of {load.tokens:,} tokens in the KV pool"))
        rows.append(("tokens per request", f"{load.tokens_at_cap:,}", "when all admitted run at once"))
    return rows


def calculator_row(ledger: Ledger, demand: tuple[int, int] | None) -> list[tuple[str, str, str]]:
    """The page's ratio for this request length, beside the one at hand."""
    reading = read_calculator(ledger, sum(demand)) if demand else None
    if reading is None or reading.page is None:
        return []
    best = f"; {reading.best.low} to {reading.best.high} admit the most, {reading.most}" if reading.best else ""
    return [("page's ratio", shown(reading.page), f"this plan has {shown(reading.present)}{best}")]


def total_gib(ledger: Ledger) -> float:
    """Device memory in GiB."""
    return (ledger.memory.total_bytes if ledger.memory else 0) / GIB
