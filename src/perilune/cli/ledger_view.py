"""The memory ledger as a person reads it: a bar, aligned lines, the result in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from perilune.cli.output import GIB, WIDTH, gib, paragraph, table
from perilune.plan.compose.ratio import shown
from perilune.plan.display import band_text, counted
from perilune.plan.memory import Basis, Binds, Figure, Ledger
from perilune.plan.memory.calculator import read_calculator

if TYPE_CHECKING:
    from perilune.plan.memory import Workload
    from perilune.plan.memory.pools import PoolInputs

GROUPS = (
    ("context", "contexts, NCCL", "░", "bright_black"),
    ("weights", "weights", "█", "blue"),
    ("draft_weights", "draft weights", "▓", "cyan"),
    ("weights_other", "loaded besides", "▒", "blue"),
    ("multimodal", "multimodal", "m", "magenta"),
    ("state", "state pool", "S", "green"),
    ("kv", "KV pool", "K", "yellow"),
    ("nobody", "in no budget", "!", "red"),
    ("graphs", "graphs, activations", "·", "bright_black"),
    ("missing", "missing", "-", "red"),
)
BINDS = {
    Binds.STATE: "the KDA state pool binds",
    Binds.KV: "the KV pool binds",
    Binds.ASKED: "the request limit binds",
}


def grouped(lines: Iterable[Figure]) -> dict[str, int]:
    """Bytes of each part of the bar; what a plan leaves over joins the graphs, what it lacks stands alone."""
    sums = dict.fromkeys((name for name, *_ in GROUPS), 0)
    for line in lines:
        if isinstance(line.value, int):
            part = line.name.split(".")[0]
            if part in ("slack", "rest"):
                part = "missing" if part == "rest" and line.value < 0 else "graphs"
            sums[part] += line.value
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
        entry = f"{mark} {label} {gib(sums[name], 2 if name == 'missing' else 1)}"
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
        one = f"one {ledger.resolved.platform.unit}"
        where = one if len(ledger.stages) == 1 else f"{one} of PP stage {stage}"
        over = "; it does not fit" if not ledger.boots and _overfull(ledger, stage) else ""
        console.print(f"Memory of {where}, {total_gib(ledger):.2f} GiB ({basis_text(ledger)}{over})", style="bold")
        console.print(bar(ledger, stage))
        console.print(legend(ledger, stage))
        if every_line:
            console.print(_line_table(ledger.lines(stage)))
        elif unbudgeted := _unbudgeted(ledger, stage):
            paragraph(f"! is built, but budgeted nowhere: {', '.join(unbudgeted)}.", style="dim")


def _unbudgeted(ledger: Ledger, stage: int) -> list[str]:
    """The parts that no budget covers and that one would notice, the largest first."""
    lines = [line for line in ledger.lines(stage) if line.name.startswith("nobody.") and isinstance(line.value, int)]
    large = [line for line in lines if isinstance(line.value, int) and line.value >= GIB // 20]
    return [line.label for line in sorted(large, key=lambda line: -int(line.value or 0))]


def _overfull(ledger: Ledger, stage: int) -> bool:
    sums = grouped(ledger.lines(stage))
    return sums["graphs"] < 0 or sums["missing"] < 0


def _distinct(ledger: Ledger) -> Sequence[int]:
    """The fullest stage, and the emptiest where they differ."""
    if not ledger.stages:
        return ()
    fullest = min(ledger.stages, key=lambda stage: stage.free_gib)
    emptiest = max(ledger.stages, key=lambda stage: stage.free_gib)
    return (fullest.index,) if fullest.free_gib == emptiest.free_gib else (fullest.index, emptiest.index)


def _line_table(lines: Sequence[Figure]) -> object:
    """One row a line of at least 0.005 GiB; the smaller ones together."""
    marks = {Basis.EXACT: "", Basis.PREDICTED: "~", Basis.PUBLISHED: "p"}
    sizes = {line.name: line.value if isinstance(line.value, int) else 0 for line in lines}
    large = [line for line in lines if abs(sizes[line.name]) >= GIB // 200]
    room = WIDTH - max((len(line.label) for line in large), default=0) - 15
    rows = [(line.label, gib(sizes[line.name]), marks[line.basis], _shortened(line.formula, room)) for line in large]
    small = sum(sizes.values()) - sum(sizes[line.name] for line in large)
    if len(large) < len(lines):
        rows.append(("smaller parts", gib(small), "", f"{counted(len(lines) - len(large), 'line')} below 0.005 GiB"))
    return table(("part", "GiB", "", "from"), rows, right=(1,))


def _shortened(formula: str, room: int) -> str:
    """A formula on two lines at most: of a longer sum the first term, and how many more there are."""
    terms = _terms(formula.split("; ")[0])
    return formula if len(formula) <= 2 * room or len(terms) == 1 else f"{terms[0]} + {len(terms) - 1} more"


def _terms(formula: str) -> list[str]:
    """The terms of a sum; what stands in brackets is one."""
    found, depth, start = list[str](), 0, 0
    for at, character in enumerate(formula):
        depth += (character == "(") - (character == ")")
        if not depth and formula.startswith(" + ", at):
            found.append(formula[start:at])
            start = at + 3
    return [*found, formula[start:]]


def basis_text(ledger: Ledger) -> str:
    """How far to trust the figures."""
    return "exact for these boot-log figures" if ledger.basis is Basis.EXACT else "predicted, no boot log given"


def refuses(ledger: Ledger, demand: tuple[int, int] | None) -> bool:
    """Whether a server that boots refuses requests of this input and output length."""
    model = ledger.resolved.engine_model
    return demand is not None and model is not None and sum(demand) > model.context_length


def verdict(ledger: Ledger, demand: tuple[int, int] | None = None) -> str:
    """What is admitted and what decides it, in one sentence; for requests of one length where it is known."""
    sizing, inputs, model = ledger.sizing, ledger.inputs, ledger.resolved.engine_model
    if sizing is None or inputs is None or not ledger.boots:
        return f"Does not boot: {ledger.error or ledger.load_error or ledger.allocation_error}"
    if demand is not None and model is not None and refuses(ledger, demand):
        return f"Refuses requests of {sum(demand):,} tokens: the context is {model.context_length:,} tokens."
    workers = inputs.attn_dp
    load = ledger.workload(*demand) if demand else None
    if load is None:
        text = f"Admits {counted(sizing.requests * workers, 'request')} at once; {BINDS[sizing.binds]}."
    else:
        binds = BINDS[Binds(load.binds)]
        text = f"Admits {counted(load.admitted * workers, 'request')} of {load.tokens:,} tokens at once; {binds}."
    if workers > 1:
        text += f" That is over {workers} attention-DP workers; the figures below are of one worker."
    found = ledger.workload_range(*demand) if demand else ledger.requests_range
    if found and found.low != found.high:
        text += f" Within the error band: {band_text(found.low * workers, found.high * workers, boots=found.boots)}."
    return text


def result_rows(ledger: Ledger, load: Workload | None) -> list[tuple[str, str, str]]:
    """The results of one attention-DP worker: name, value, how it came about."""
    sizing, inputs = ledger.sizing, ledger.inputs
    if sizing is None or inputs is None:
        return []
    rows = [("max_running_requests", f"{sizing.requests:,}", f"of any length: {BINDS[sizing.binds]}")]
    if sizing.slots is not None:
        per = inputs.slots_per_request
        meaning = f"state slots at {per} per request: {counted(sizing.slots // per, 'request')}"
        rows.append(("max_mamba_cache_size", f"{sizing.slots:,}", meaning))
    logical = f"; {sizing.logical_tokens:,} tokens over DCP {inputs.dcp}" if inputs.dcp > 1 else ""
    rows.append(("max_total_num_tokens", f"{sizing.tokens:,}", f"KV rows a rank{logical}"))
    if load is not None:
        rows.append(("requests of this length", f"{load.by_kv:,}", f"of {load.tokens:,} tokens in the KV pool"))
        page = inputs.page * inputs.dcp
        run = "runs" if sizing.requests == 1 else "run"
        meaning = f"if {sizing.requests:,} {run} at once (whole pages of {page:,})"
        rows.append(("tokens per request", f"{load.tokens_at_cap:,}", meaning))
    return rows


def calculator_row(ledger: Ledger, demand: tuple[int, int] | None) -> list[tuple[str, str, str]]:
    """The page's ratio for this request length, beside the one at hand, and those that hold the most requests."""
    reading = read_calculator(ledger, sum(demand)) if demand else None
    if reading is None or reading.page is None or ledger.inputs is None or refuses(ledger, demand):
        return []
    sized_by = _sized_by(ledger.inputs)
    if sized_by:
        return [("cookbook's ratio", shown(reading.page), f"void here: {sized_by} sizes the state pool")]
    rows = [("cookbook's ratio", shown(reading.page), f"for this length; the plan has {shown(reading.present)}")]
    if reading.best:
        asked = ", were they asked for" if ledger.sizing and ledger.sizing.binds is Binds.ASKED else ""
        span = f"to {reading.best.high}: the pools hold {reading.most:,}, the most{asked}"
        rows.append(("best ratio", str(reading.best.low), span))
    return rows


def _sized_by(inputs: PoolInputs) -> str:
    """The flag that sizes the state pool in the ratio's place; empty where the ratio does."""
    if inputs.given_slots is not None:
        return "--max-mamba-cache-size"
    return "--max-running-requests" if inputs.radix_off and inputs.asked is not None else ""


def total_gib(ledger: Ledger) -> float:
    """Device memory in GiB."""
    return (ledger.memory.total_bytes if ledger.memory else 0) / GIB
