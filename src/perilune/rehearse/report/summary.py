"""A rehearsal on one screen of 80 columns: what ran, how far to trust it, what users feel, what they waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perilune.plan.display import printable
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.report import phrases
from perilune.rehearse.report.overtime import busy_by_role
from perilune.rehearse.report.rehearsal import Rehearsal
from perilune.rehearse.report.text import WIDTH, change, share, short_time, sparkline, wrapped

LABEL = 12


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the summary; `style` is a name that a terminal may colour: head, good, bad, dim or none."""

    text: str
    style: str = ""


def summary(run: Rehearsal) -> list[Line]:
    """The lines of a rehearsal, none longer than 80 columns."""
    found = run.outcome
    lines = [*_what(run), Line("")]
    if found.interrupted:
        lines += [*_wrapped("Interrupted: what follows is what had happened until then.", "bad"), Line("")]
    lines += _latencies(found)
    lines += [line for text in phrases.remarks(run) for line in _wrapped(text, "dim", indent="- ")]
    lines.append(Line(""))
    for label, text, style in _facts(run):
        lines += _labelled(label, text, style)
    if found.notes:
        lines += [Line(""), *(line for note in found.notes for line in _wrapped(note, "dim", indent="- "))]
    return [*lines, *_over_time(found), *_published(run)]


def _what(run: Rehearsal) -> Iterator[Line]:
    yield from _wrapped(f"Rehearsal of {phrases.title(run)}", "head")
    yield from _wrapped(phrases.pools_text(run))
    yield from _wrapped(phrases.traffic_text(run))
    yield from _wrapped(phrases.trust_text(run), "dim")
    if run.acceptance is not None:
        yield from _wrapped(phrases.acceptance_text(run), "dim")


def _latencies(found: Outcome) -> Iterator[Line]:
    columns = ("p50", "p90", "p99", "max", "mean")
    yield Line(" " * LABEL + "".join(f"{name:>12}" for name in columns), "head")
    for name in ("ttft", "tpot", "itl", "e2e"):
        of = getattr(found, f"{name}_s")
        cells = [short_time(getattr(of, column)) if of.count else "-" for column in columns]
        yield Line(f"{name.upper():<{LABEL}}" + "".join(f"{cell:>12}" for cell in cells))


def _facts(run: Rehearsal) -> Iterator[tuple[str, str, str]]:
    found = run.outcome
    yield "throughput", phrases.output_text(run), ""
    if run.slo is not None:
        yield "goodput", phrases.goodput_text(run), "good" if run.slo_met else "bad"
    served = found.requests.completed > 0
    yield "requests", phrases.requests_text(found), "" if served else "bad"
    for number, (role, text) in enumerate(phrases.admitted(run)):
        yield "" if number else "admitted", f"{role}: {text}" if role else text, ""
    spent = phrases.waits(found)
    each = ", ".join(f"{cause} {share(part)}" for cause, _, part in spent)
    yield "waited for", f"{each} of the time from arrival to last token" if spent else "nothing", ""
    if found.prompt_tokens:
        hit = share(found.hit_tokens / found.prompt_tokens) if found.hit_tokens else "none"
        yield "cache hits", f"{hit} of {found.prompt_tokens:,} prompt tokens", ""
    for name, text in run.settings.items():
        yield name, printable(text), ""


def _over_time(found: Outcome) -> Iterator[Line]:
    series, width = found.series, WIDTH - LABEL - 14
    if not series.running or not found.duration_s:
        return
    yield Line("")
    for label, values in (*busy_by_role(found).items(), ("queued", series.queued)):
        top = max(values, default=0.0)
        peak = f"{top:.1f}" if top < 9.95 and top != int(top) else f"{top:,.0f}"
        yield Line(f"{label:<{LABEL}}{sparkline(values, width, top):<{width}}  peak {peak}")
    end = short_time(found.duration_s)
    yield Line(f"{'':<{LABEL}}0 s{end:>{max(min(len(series.running), width) - 3, len(end) + 1)}}", "dim")
    yield Line(f"{'':<{LABEL}}peaks are of means over {short_time(series.bin_s)}", "dim")


def _published(run: Rehearsal) -> Iterator[Line]:
    if not run.published:
        return
    found = run.outcome
    yield Line("")
    yield Line(f"Published of this recipe, measured: {phrases.method_text()}", "head")
    yield from _wrapped(phrases.differs_text(run.published))
    yield Line(f"{'concurrency':<{LABEL}}{'TTFT':>12}{'TPOT':>12}{'tok/s/GPU':>12}  engine", "head")
    for one in run.published:
        point = one.point
        row = f"{short_time(point.ttft_ms / 1000):>12}{short_time(point.tpot_ms / 1000):>12}"
        engine = one.card.engine.split(" ")[0]
        yield Line(f"{point.concurrency:<{LABEL}}{row}{point.tokens_per_s_per_gpu:>12,.0f}  SGLang {engine}")
        if phrases.compared(one, found):
            off = "".join(f"{change(ratio):>12}" for ratio in phrases.against(one, found))
            yield Line(f"{'predicted':<{LABEL}}{off}  against it")
    for caveat in dict.fromkeys(caveat for one in run.published for caveat in one.card.caveats):
        yield from _wrapped(caveat, "dim", indent="- ")


def _wrapped(text: str, style: str = "", *, indent: str = "") -> list[Line]:
    return [Line(line, style) for line in wrapped(text, WIDTH, indent)]


def _labelled(label: str, text: str, style: str = "") -> list[Line]:
    lines = wrapped(text, WIDTH - LABEL) or [""]
    return [Line(f"{label if number == 0 else '':<{LABEL}}{line}", style) for number, line in enumerate(lines)]
