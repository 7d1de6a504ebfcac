"""`perilune calibrate`: refit the step times to results of your own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perilune.cli import options, output
from perilune.cli.choice import CHOICES, REPEATED, deployment_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perilune.rehearse.calibration.calibrate import Calibration
    from perilune.rehearse.calibration.fit import Residual

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)


def measured_on(function: F) -> F:
    """What the results were measured on: a plan file, or the choice flags of `plan`."""
    for flag, name, metavar, text in reversed(REPEATED):
        function = click.option(flag, name, multiple=True, metavar=metavar, help=text)(function)
    function = click.option("--gpus", type=click.IntRange(1, 4096), metavar="N", help="GPUs of a preset.")(function)
    for flag, text in reversed(CHOICES):
        function = click.option(flag, metavar="NAME", help=text)(function)
    return click.option(
        "--plan", "plan_file", type=FILE, metavar="FILE", help="The plan that ran, in place of choice flags."
    )(function)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="RESULTS...", type=FILE)
@measured_on
@click.option(
    "--acceptance-length",
    type=click.FloatRange(min=1),
    metavar="A",
    help="Tokens a speculative step yielded, where the results do not say.",
)
@click.option("-o", "--output", "target", type=FILE, metavar="FILE", help="Where to put the profile.")
@options.json_option
def calibrate(
    files: tuple[Path, ...],
    plan_file: Path | None,
    acceptance_length: float | None,
    target: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Refit the step times to results of your own.

    Reads results of sglang.bench_serving (JSONL), aiperf
    (profile_export_aiperf.json) and guidellm (benchmarks.json), rehearses every
    run on the plan it was measured on, and writes a local profile that later
    rehearsals of this platform use: from --output with --profile, or from your
    configuration folder by themselves.

    Exit 1 where the runs seem to be of another plan or platform: the profile is
    then written only where --output says.

    \b
    perilune calibrate c1.jsonl c16.jsonl c64.jsonl \\
        --hardware b300 --mode unified --strategy balanced
    """
    from perilune.cli.rehearse_files import refuse_unwritable
    from perilune.plan.planned import plan
    from perilune.rehearse.calibration.calibrate import calibrate as fitted
    from perilune.rehearse.calibration.results import read_results
    from perilune.rehearse.timing.profile import default_path, write_profile

    if target is not None:
        refuse_unwritable([target], None, [*files, plan_file])
    results = [result for path in files for result in read_results(path)]
    found = fitted(plan(deployment_of(plan_file, given)), results, acceptance_length)
    place = target or (None if found.doubt else default_path(found.profile.platform))
    if place is not None:
        write_profile(found.profile, place)
    if as_json:
        output.emit_json(document(found, place))
    else:
        _print(found, place, by_itself=target is None)
    return int(found.doubt is not None)


def document(found: Calibration, place: Path | None) -> dict[str, Any]:
    """The calibration as plain data; `place` is where the profile was written, if it was."""
    import msgspec

    from perilune.rehearse.calibration.fit import median_errors

    names = ("ttft_s", "tpot_s", "tokens_per_second_per_gpu")

    def runs(residuals: Sequence[Residual]) -> list[dict[str, Any]]:
        return [
            {
                "source": one.target.name,
                "acceptance_length": one.target.acceptance,
                "predicted": dict(zip(names, one.predicted.known, strict=True)),
                "measured": dict(zip(names, one.target.seen.known, strict=True)),
                "error": dict(zip(names, one.errors, strict=True)),
            }
            for one in residuals
        ]

    return {
        "doubt": found.doubt,
        "profile": None if place is None else str(place),
        "platform": found.profile.platform,
        "efficiency": msgspec.to_builtins(found.profile.efficiency),
        "error_band": [found.profile.below, found.profile.above],
        "median_error_before": dict(zip(names, median_errors(found.before), strict=True)),
        "median_error_after": dict(zip(names, median_errors(found.after), strict=True)),
        "runs": runs(found.after),
    }


def _print(found: Calibration, place: Path | None, *, by_itself: bool) -> None:
    from perilune.rehearse.calibration.fit import QUANTITIES
    from perilune.rehearse.timing.basis import BOUNDS, efficient

    console = output.console()
    if found.doubt:
        output.paragraph(
            f"{found.doubt}. Something else may differ: another plan or platform than the one that ran, a cache that "
            "was not flushed, a busy machine.",
            style="bold red",
        )
        console.print()
    shipped = efficient(found.profile.platform).efficiency
    rows = [(name, f"{getattr(shipped, name):g}", f"{getattr(found.profile.efficiency, name):g}") for name in BOUNDS]
    console.print(output.table(("efficiency", "shipped", "calibrated"), rows, right=(1, 2)))
    console.print()
    table = [
        (before.target.name, *(_change(was, now) for was, now in zip(before.errors, after.errors, strict=True)))
        for before, after in zip(found.before, found.after, strict=True)
    ]
    console.print(output.table(("run, error of the prediction", *QUANTITIES), table, right=(1, 2, 3)))
    console.print()
    yielded = sorted({one.target.acceptance for one in found.after if one.target.acceptance is not None})
    if yielded:
        between = " to ".join(f"{length:g}" for length in dict.fromkeys((yielded[0], yielded[-1])))
        output.paragraph(
            f"The runs yielded {between} tokens a speculative step. A profile holds step times alone: rehearse with "
            f"--acceptance-length {median(yielded):g}."
        )
    if place is None:
        output.paragraph("No profile was written. To keep this one all the same, give -o FILE.")
        return
    how = "Rehearsals of this platform use it by themselves." if by_itself else f"Use it with --profile {place}."
    output.paragraph(f"Wrote {place}. {how}")


def _change(was: float | None, now: float | None) -> str:
    return "-" if was is None or now is None else f"{round(100 * was):+d} → {round(100 * now):+d} %"
