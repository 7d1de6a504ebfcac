"""`perilune sweep`: a grid of rehearsals, and the frontier of throughput against interactivity."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from perilune.cli import options, output
from perilune.cli.choice import CHOICES, REPEATED
from perilune.cli.rehearse_traffic import POSITIVE, RATE, described, traffic_options
from perilune.errors import UnusableInput
from perilune.plan.memory.levers import LEVERS

if TYPE_CHECKING:
    from types import TracebackType

    from perilune.rehearse.fleet.policies import PolicyName
    from perilune.rehearse.offered import OfferedLoad
    from perilune.rehearse.sweep import Point, Servers, Swept

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

FILE = click.Path(dir_okay=False, path_type=Path)
FRONTIER = "frontier.png"
MOST_VALUES = 1000
SERVERS = click.IntRange(1, 10_000)


class Listed(click.ParamType[tuple[Any, ...]]):
    """Values with commas between them, each read by another type; none twice."""

    def __init__(self, of: click.ParamType[Any]) -> None:
        self.of = of
        self.name = f"{of.name} list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        words = [word.strip() for word in str(value).split(",")]
        if len(words) > MOST_VALUES or not all(words):
            self.fail(f"{str(value)[:60]!r} is no list of 1 to {MOST_VALUES} values with commas between.", param, ctx)
        return tuple(dict.fromkeys(self.of(word, param, ctx) for word in words))


class Ratio(click.ParamType[tuple[int, int]]):
    """Prefill and decode servers, as `1:3`."""

    name = "P:D"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        first, colon, second = str(value).partition(":")
        if not colon:
            self.fail(f"{str(value)[:60]!r} is not P:D, such as 1:3.", param, ctx)
        prefill, decode = (SERVERS(word, param, ctx) for word in (first, second))
        return prefill, decode


def axis_options(function: F) -> F:
    """The axes: each takes values with commas between them."""
    text = click.STRING
    axes: list[tuple[str, click.ParamType[Any], str]] = [(flag, text, known) for flag, known in CHOICES]
    axes += [
        ("--gpus", click.IntRange(1, 4096), "GPUs of a preset."),
        ("--lever", text, f"Capacity levers, each alone: none, {', '.join(lever.named for lever in LEVERS)}."),
        ("--replicas", SERVERS, "Servers of a plan with one pool."),
        ("--pd", Ratio(), "Prefill and decode servers, as 1:1,1:2."),
        ("--concurrency", options.REQUESTS, "Closed loops of N requests."),
        ("--rate", RATE, "Poisson arrivals, R requests a second."),
    ]
    for flag, kind, known in reversed(axes):
        name = flag.removeprefix("--").replace("-", "_")
        function = click.option(flag, name, type=Listed(kind), metavar="V,V,...", help=known)(function)
    return function


def fixed_options(function: F) -> F:
    """What is the same for every point."""
    for flag, name, metavar, text in reversed(REPEATED):
        function = click.option(flag, name, multiple=True, metavar=metavar, help=text)(function)
    fixed: list[tuple[str, Any, str, str]] = [
        ("--isl", options.TOKENS, "TOKENS", "Input tokens per request."),
        ("--osl", options.TOKENS, "TOKENS", "Output tokens per request."),
        ("--router", str, "POLICY", "As in rehearse."),
        ("--acceptance-length", POSITIVE, "A", "As in rehearse."),
        ("--profile", FILE, "FILE", "Step times from `perilune calibrate`."),
    ]
    for flag, kind, metavar, text in reversed(fixed):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    text = "Where a pool would not boot, rehearse its variant that does."
    function = click.option("--corrected", is_flag=True, help=text)(function)
    seed = click.IntRange(0, 2**63 - 1)
    return click.option("--seed", type=seed, default=0, metavar="S", help="Of all that is random.")(function)


@click.command()
@click.argument("plan_file", required=False, metavar="[PLAN]", type=FILE)
@axis_options
@fixed_options
@traffic_options
@click.option("--resume", "store", type=FILE, metavar="FILE", help="Keep finished points here, and skip those it has.")
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes; default one a core.")
@click.option("--html", type=FILE, metavar="FILE", help="Write the frontier and all points as a page.")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write frontier.png.")
@options.json_option
def sweep(
    plan_file: Path | None,
    store: Path | None,
    jobs: int | None,
    html: Path | None,
    plots: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Rehearse a grid, and draw throughput against interactivity.

    Every flag of the first block takes values with commas between them, and
    every combination is one point. Points run in parallel; how many processes
    there are changes nothing in the output.

    Exit 1 when no point is served. Ctrl-C shows what is finished and exits
    with 130; with --resume FILE the next run goes on from there.

    \b
    perilune sweep --hardware b300 --strategy low-latency,balanced \\
        --isl 8192 --osl 1024 --concurrency 1,16,64 --resume points.jsonl
    """
    from perilune.cli.rehearse_files import refuse_unwritable
    from perilune.rehearse.sweep import default_jobs, run

    grid = _grid(plan_file, given)
    files = [path for path in (html, store, plots and plots / FRONTIER) if path is not None]
    refuse_unwritable(files, plots, [plan_file, grid[0].load.trace, grid[0].profile])
    with Progress() as progress:
        found, missing = run(grid, jobs=jobs or default_jobs(), store=store, progress=progress.update)
    try:
        _write(found, missing, html, plots)  # first: who reads what is shown may stop half-way
    finally:
        _show(found, missing, as_json)
    if missing:
        return 130
    return int(not any(one.throughput for one in found))


def _grid(plan_file: Path | None, given: dict[str, Any]) -> tuple[Point, ...]:
    """The points that were asked for; raises UnusableInput."""
    from perilune.rehearse.sweep import Point, points
    from perilune.rehearse.sweep.grid import CHOSEN, NO_LEVER

    axes = {name: given.pop(name) for name in CHOSEN}
    edits = {name: given.pop(name) for _, name, *_ in REPEATED}
    if plan_file is not None:
        spare = [name for name, values in (*axes.items(), *edits.items()) if values]
        if spare:
            raise UnusableInput(
                "A plan file already holds the choice.",
                where="--" + spare[0].replace("_", "-"),
                fix="Leave it out, or the plan file.",
            )
    elif not axes["hardware"]:
        raise UnusableInput("Say which hardware to sweep.", where="--hardware", fix="Or give a plan file.")
    replicas, ratios, levers = given.pop("replicas"), given.pop("pd"), given.pop("lever") or (NO_LEVER,)
    shared = {n: given.pop(n) for n in ("acceptance_length", "profile", "corrected")}
    shared["router"] = _router(given.pop("router"))
    traffic = described(given)
    made_for: dict[str, Any] = {}
    if plan_file is None and "trace" in traffic:
        made_for = {name: given.pop(name) for name in ("isl", "osl")}
    elif plan_file is not None and "trace" not in traffic:
        _as_planned(plan_file, given)
    loads = tuple(_loads(**given, **traffic))
    base = Point(load=loads[0], plan_file=plan_file, **edits, **shared, **made_for)
    found = points(base, axes, tuple(_servers(replicas, ratios)), levers, loads)
    first = found[0].deployment()  # what no point could use is said before the others start
    one_choice = all(len(values or ()) < 2 for values in axes.values())
    if base.acceptance_length is not None and one_choice and {pool.spec for pool in first.pools} == {"none"}:
        raise UnusableInput("No point speculates.", where="--acceptance-length", fix="Leave it out.")
    return found


def _as_planned(plan_file: Path, given: dict[str, Any]) -> None:
    """What a plan file says of its workload fills the gaps."""
    from perilune.plan.planfile import read_plan

    load = read_plan(plan_file).workload
    given["isl"], given["osl"] = given["isl"] or load.isl, given["osl"] or load.osl
    if not given["rate"] and not given["concurrency"] and load.concurrency:
        given["concurrency"] = (load.concurrency,)


def _loads(concurrency: tuple[int, ...] | None, rate: tuple[float, ...] | None, **fixed: Any) -> Iterator[OfferedLoad]:
    from perilune.rehearse.offered import OfferedLoad

    for number in concurrency or ():
        yield OfferedLoad(concurrency=number, **fixed)
    for per_second in rate or ():
        yield OfferedLoad(rate=per_second, **fixed)
    if not concurrency and not rate:
        yield OfferedLoad(**fixed)


def _servers(replicas: Iterable[int] | None, ratios: Iterable[tuple[int, int]] | None) -> Iterator[Servers]:
    from perilune.rehearse.sweep import Servers

    if replicas and ratios:
        raise UnusableInput("A plan has one pool or two.", where="--replicas, --pd", fix="Give one of them.")
    if ratios:
        yield from (Servers(prefill=prefill, decode=decode) for prefill, decode in ratios)
    else:
        yield from (Servers(unified=number) for number in replicas or (None,))


def _router(name: str | None) -> PolicyName | None:
    from perilune.rehearse.fleet.policies import POLICIES

    if name is not None and name not in POLICIES:
        raise UnusableInput(f"{name[:40]!r} is no policy.", where="--router", fix=f"Known: {' '.join(POLICIES)}.")
    return cast("PolicyName | None", name)


def _show(found: tuple[Swept, ...], missing: int, as_json: bool) -> None:
    if as_json:
        from perilune.rehearse.sweep.export import sweep_document

        output.emit_json(sweep_document(found, missing))
    else:
        from perilune.cli.rehearse_view import print_lines
        from perilune.rehearse.sweep.text import sweep_lines

        print_lines(sweep_lines(found, missing))


def _write(found: tuple[Swept, ...], missing: int, html: Path | None, plots: Path | None) -> None:
    from perilune.files import replace_file
    from perilune.rehearse.sweep.export import frontier_png, sweep_html

    if html is not None:
        replace_file(html, sweep_html(found, missing))
        output.note(f"Wrote {html}.")
    if plots is not None:
        replace_file(plots / FRONTIER, frontier_png(found))
        output.note(f"Wrote {plots / FRONTIER}.")


class Progress:
    """One line of progress on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            sys.stderr.write(f"\r{'':<60}\r")
            sys.stderr.flush()

    def update(self, done: int, total: int) -> None:
        """So many points are done."""
        from perilune.plan.display import counted

        if self._shown:
            text = f"{done:,} of {counted(total, 'point')}; Ctrl-C keeps what is done"
            sys.stderr.write(f"\r{text:<60}")
            sys.stderr.flush()
