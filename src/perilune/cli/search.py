"""`perilune plan --search`: the cheapest shape that meets its targets, and why the others do not."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from perilune.cli import output
from perilune.cli.choice import CHOICES, REPEATED
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from perilune.rehearse.report.summary import Line
    from perilune.rehearse.search import Found, Judged, Percentile, Wanted
    from perilune.rehearse.sweep import Point

F = TypeVar("F", bound=Callable[..., Any])

SHOWN = 6
DEFAULT_BUDGET = 64


def search_options(function: F) -> F:
    """What a search is asked for."""
    milliseconds = click.FloatRange(0.001, 10**9)
    for flag, kind, metavar, text in reversed(
        (
            ("--ttft-ms", milliseconds, "MS", "Search: most time to the first token."),
            ("--tpot-ms", milliseconds, "MS", "Search: most time per output token."),
            ("--percentile", click.Choice(("p50", "p90", "p99")), None, "Search: of both; p50 unless given."),
            ("--jobs", click.IntRange(1, 1024), "N", "Search: processes; default one a core."),
        )
    ):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    text = "The cheapest shape within --gpus that meets --ttft-ms and --tpot-ms for the workload."
    return click.option("--search", "searching", is_flag=True, help=text)(function)


def searched(target: Path | None, *, as_yaml: bool, as_json: bool, jobs: int | None, **given: Any) -> int:
    """Search, print, and write the winner's plan where it was asked for; 1 when no shape meets the targets."""
    from perilune.plan.planfile import plan_yaml, write_plan
    from perilune.plan.planned import plan
    from perilune.rehearse.search import search
    from perilune.rehearse.sweep import default_jobs

    base, wanted = _asked(given)
    try:
        found = search(base, wanted, jobs=jobs or default_jobs(), progress=_progress)
    except KeyboardInterrupt:
        raise click.Abort from None
    finally:
        _progress(None)
    won = None if found.winner is None else plan(found.winner.deployment)
    if as_json:
        output.emit_json(_document(found, wanted))
    elif as_yaml and won is not None:
        click.echo(plan_yaml(won), nl=False)
    else:
        from perilune.cli.rehearse_view import print_lines

        print_lines(_lines(found, wanted))
    if target is not None and won is not None:
        write_plan(won, target)
        output.note(f"Wrote {target}.")
    return int(won is None)


def _asked(given: dict[str, Any]) -> tuple[Point, Wanted]:
    from perilune.rehearse.offered import OfferedLoad
    from perilune.rehearse.search import Wanted
    from perilune.rehearse.sweep import Point

    if given.get("hardware") is None:
        raise UnusableInput("Say which hardware to search.", where="--hardware", fix="For example: --hardware b300.")
    if given.get("concurrency") is None:
        raise UnusableInput("How many requests at once?", where="--search", fix="Give --concurrency N.")
    load = OfferedLoad(concurrency=given["concurrency"], isl=given["isl"], osl=given["osl"])
    axes = [flag.removeprefix("--").replace("-", "_") for flag, _ in CHOICES]
    edits = {name: given[name] for _, name, *_ in REPEATED}
    choice = {name: given[name] for name in axes if given.get(name) is not None}
    wanted = Wanted(
        load=load,
        ttft_s=None if given["ttft_ms"] is None else given["ttft_ms"] / 1000,
        tpot_s=None if given["tpot_ms"] is None else given["tpot_ms"] / 1000,
        percentile=cast("Percentile", given["percentile"] or "p50"),
        gpus=given["gpus"] or DEFAULT_BUDGET,
    )
    return Point(load=load, choice=choice, **edits), wanted


def _progress(done: int | None) -> None:
    """How many rehearsals are done, on a terminal; None wipes the line."""
    from perilune.plan.display import counted

    if sys.stderr.isatty():
        text = "" if done is None else counted(done, "rehearsal")
        sys.stderr.write(f"\r{text:<40}\r")
        sys.stderr.flush()


def _document(found: Found, wanted: Wanted) -> dict[str, Any]:
    return {
        "search": 1,
        "workload": {"isl": wanted.load.isl, "osl": wanted.load.osl, "concurrency": wanted.concurrency},
        "targets": {
            "percentile": wanted.percentile,
            **{member: most for _, member, most in wanted.targets},
            "gpus": wanted.gpus,
        },
        "winner": None if found.winner is None else _judged(found.winner),
        "rejected": [_judged(judged) for judged in found.judged if judged is not found.winner],
        "rehearsals": found.rehearsals,
    }


def _judged(judged: Judged) -> dict[str, Any]:
    servers = judged.servers
    return {
        "shape": judged.shape.name,
        "choice": dict(judged.shape.point.choice),
        "lever": judged.shape.point.lever,
        "corrected": judged.shape.point.corrected,
        "verified": judged.shape.verified,
        "servers": {role: n for role in ("unified", "prefill", "decode") if (n := getattr(servers, role)) is not None},
        "gpus": judged.gpus,
        "verdict": str(judged.verdict),
        "why": judged.why,
        "result": judged.result,
    }


def _lines(found: Found, wanted: Wanted) -> Iterator[Line]:
    """The winner in full, and of each kind of rejection those that came nearest."""
    from perilune.plan.display import counted
    from perilune.rehearse.report.summary import Line
    from perilune.rehearse.report.text import WIDTH, short_time, wrapped
    from perilune.rehearse.search import Verdict

    targets = " and ".join(f"{name} {short_time(most)}" for name, _, most in wanted.targets)
    load, by_default = wanted.load, wanted.gpus == DEFAULT_BUDGET
    asked = (
        f"{load.isl:,} + {load.osl:,} tokens, {wanted.concurrency:,} at once, {wanted.percentile} of {targets}, "
        f"at most {counted(wanted.gpus, 'GPU')}{' (unless --gpus says otherwise)' if by_default else ''}"
    )
    yield from (Line(text, "head") for text in wrapped(asked, WIDTH))
    winner = found.winner
    if winner is None:
        yield Line("No shape meets this.", "bad")
    else:
        yield from _won(winner)
    for verdict in Verdict:
        several = [judged for judged in found.judged if judged.verdict is verdict and judged is not winner]
        if not several:
            continue
        also = "also meets the targets, on as many GPUs" if verdict is Verdict.MEETS else str(verdict)
        yield Line("")
        yield Line(f"{also}: {len(several)}", "head")
        if verdict is Verdict.NOT_TRIED:
            reasons = Counter(judged.why for judged in several)
            yield from (Line(f"  {number}: {why}") for why, number in reasons.items())
            continue
        for judged in several[:SHOWN]:
            mark = "verified; " if judged.shape.verified else ""
            text = f"{judged.servers.said} x {judged.shape.name}: {mark}{judged.why}"
            yield from (Line(line) for line in wrapped(text, WIDTH, "  "))
        if len(several) > SHOWN:
            yield Line(f"  and {len(several) - SHOWN} more, in --json", "dim")
    yield Line("")
    for text in _explained(found):
        yield from (Line(line, "dim") for line in wrapped(text, WIDTH))


def _won(winner: Judged) -> Iterator[Line]:
    """The winner: what it does, how far to trust it, and the commands that plan it and rehearse all its servers."""
    from perilune.plan.compose.pool import STARTING_POINT, VERIFIED
    from perilune.plan.display import counted
    from perilune.rehearse.report.summary import Line
    from perilune.rehearse.report.text import WIDTH, wrapped

    result, servers, point = winner.result or {}, winner.servers, winner.shape.point
    name = f"{servers.said} x {winner.shape.name} on {counted(winner.gpus, winner.shape.unit)}"
    yield from (Line(text, "good") for text in wrapped(name, WIDTH))
    yield from (Line(text) for text in wrapped(f"{winner.why}; {result['tokens_per_second_per_gpu']:,.0f} "
                f"tokens/s per {winner.shape.unit}; admits {winner.shape.admits(servers):,}", WIDTH, "  "))  # fmt: skip
    trust = f"{VERIFIED if winner.shape.verified else STARTING_POINT} Its times are predicted, not measured."
    yield from (Line(text, "dim") for text in wrapped(trust, WIDTH, "  "))
    one = "one server" if servers.prefill is None else "one prefill and one decode server"
    yield Line(f"  {'The commands' if point.corrected else 'The plan'} of {one}:", "dim")
    yield from (
        Line(text) for text in wrapped(_command(point, "commands" if point.corrected else "plan"), WIDTH, "    ")
    )
    if servers == winner.shape.one:
        return
    if servers.prefill is not None:
        every = f"{counted(servers.prefill, 'prefill server')} and {counted(servers.decode or 1, 'decode server')}"
        flags = f" --prefill-replicas {servers.prefill} --decode-replicas {servers.decode}"
    else:
        every, flags = counted(servers.unified or 1, "server"), f" --replicas {servers.unified}"
    yield from (Line(text, "dim") for text in wrapped(f"All of it, {every} (-o FILE writes its plan):", WIDTH, "  "))
    yield from (Line(text) for text in wrapped(_command(point, "rehearse") + flags, WIDTH, "    "))


def _explained(found: Found) -> Iterator[str]:
    """How shapes are ranked, and what the names of levers stand for."""
    from perilune.plan.memory.levers import LEVERS

    yield "Ranked by GPUs, the fewest first; among equals verified ones, then tokens/s per GPU."
    pulled = {judged.shape.point.lever for judged in found.judged}
    named = [lever.named for lever in LEVERS if lever.id in pulled]
    if named:
        yield f"Levers: {', '.join(named)}."
    for lever in LEVERS:
        if lever.experimental:
            yield f"Not searched, being experimental: {lever.named}; --env sets it on every shape."


def _command(point: Point, verb: str) -> str:
    """The flags that give the shape to a verb."""
    from perilune.plan.memory.levers import LEVERS

    words = ["perilune", verb, *(["--corrected"] if point.corrected else [])]
    for name, value in point.choice.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    load = point.load
    words += ["--isl", str(load.isl), "--osl", str(load.osl), "--concurrency", str(load.concurrency)]
    for flag, name, *_ in REPEATED:
        for text in getattr(point, name):
            words += [flag, text]
    for lever in LEVERS:
        if lever.id == point.lever:
            written = lever.written.removeprefix("--")
            words += ["--env", written] if "=" in written else ["--set", written.replace(" ", "=", 1)]
    return shlex.join(words)
