"""`perilune rehearse`: a planned deployment under traffic, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from perilune.cli import options, output
from perilune.cli.choice import choice_options, deployment_of
from perilune.cli.rehearse_options import FILE, fleet_options, report_options
from perilune.cli.rehearse_traffic import MILLISECONDS, RATE, described, traffic_options
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perilune.plan.deployment import Deployment, Role
    from perilune.plan.planned import Plan
    from perilune.rehearse.acceptance import Mix
    from perilune.rehearse.fleet.outages import Lost
    from perilune.rehearse.fleet.policies import PolicyName
    from perilune.rehearse.offered import OfferedLoad
    from perilune.rehearse.report import Rehearsal
    from perilune.rehearse.tally import Targets
    from perilune.rehearse.timing import Efficient

INTERRUPTED = 130


@click.command()
@choice_options
@click.option("--rate", type=RATE, metavar="R", help="Open loop: Poisson arrivals, R requests a second.")
@traffic_options
@fleet_options
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, metavar="S", help="Of all that is random.")
@click.option("--slo-ttft-ms", type=MILLISECONDS, metavar="MS", help="Target: time to the first token.")
@click.option("--slo-tpot-ms", type=MILLISECONDS, metavar="MS", help="Target: time per output token.")
@report_options
@click.option("--compare", nargs=2, type=FILE, metavar="A B", help="Compare two saved --json outputs; runs nothing.")
@options.json_option
@click.pass_context
def rehearse(ctx: click.Context, /, compare: tuple[Path, Path] | None, as_json: bool, **given: Any) -> int:
    """How a planned deployment serves a workload, predicted without a GPU.

    Takes a plan file or plan's choice flags, and the traffic: --trace FILE,
    --concurrency N (a closed loop, as bench_serving runs it) or --rate R with
    --isl and --osl. A plan file's own workload is the default.

    Exit 1 when a pool would not boot, nothing is served, or less than 90 % of
    the requests meet the SLO. Ctrl-C ends the run with what it has: exit 130.

    \b
    perilune rehearse plan.yaml --concurrency 64 --isl 8192 --osl 1024
    perilune rehearse plan.yaml --trace conversation_trace.jsonl \\
        --replicas 2 --slo-ttft-ms 2000 --slo-tpot-ms 50 --html report.html
    """
    if compare is not None:
        _refuse_with_compare(ctx)
        return _compared(*compare, as_json)
    return _rehearsed(as_json, **given)


def _refuse_with_compare(ctx: click.Context) -> None:
    source = click.core.ParameterSource.DEFAULT
    others = [name for name in ctx.params if ctx.get_parameter_source(name) is not source]
    extra = sorted({*others} - {"compare", "as_json"})
    if extra:
        flags = {param.name: param.opts[0] for param in ctx.command.params}
        raise UnusableInput(
            "--compare reads two saved outputs and runs nothing.",
            where=", ".join(flags[name] for name in extra),
            fix="Leave the others out.",
        )


def _compared(a: Path, b: Path, as_json: bool) -> int:
    from perilune.cli.rehearse_view import print_lines
    from perilune.rehearse.report.compare import comparison, comparison_lines

    document = comparison(a, b)
    if as_json:
        output.emit_json(document)
    else:
        print_lines(comparison_lines(document))
    return 0


def _rehearsed(
    as_json: bool,
    *,
    plan_file: Path | None,
    seed: int,
    router: str | None,
    acceptance_length: float | None,
    acceptance_mix: str | None,
    profile: Path | None,
    fails: tuple[str, ...],
    lost: Lost | None,
    corrected: bool,
    replicas: int | None,
    prefill_replicas: int | None,
    decode_replicas: int | None,
    encoders: int | None,
    slo_ttft_ms: float | None,
    slo_tpot_ms: float | None,
    html: Path | None,
    plots: Path | None,
    trace_out: Path | None,
    records: Path | None,
    **given: Any,
) -> int:
    from perilune.cli.rehearse_files import Outputs
    from perilune.cli.rehearse_view import Interrupt, Progress, print_lines
    from perilune.plan.planned import plan
    from perilune.rehearse.booting import corrected as corrected_plan
    from perilune.rehearse.booting import no_boot
    from perilune.rehearse.fleet.outages import parse_outage
    from perilune.rehearse.perform import Settings, perform
    from perilune.rehearse.report import document, summary

    deployment, load = _asked(plan_file, given, described(given), seed)
    if lost is not None and not fails:
        raise UnusableInput("No server fails.", where="--lost", fix="Give --fail REPLICA@T+D, or leave it out.")
    planned = plan(deployment)
    edits: Mapping[str, str] = {}
    if corrected:
        planned, edits = corrected_plan(planned)
    mix = _mix(planned, acceptance_length, acceptance_mix)
    settings = Settings(
        replicas=_replicas(planned, replicas, prefill_replicas, decode_replicas),
        router=_router(router),
        encoders=encoders or 0,
        outages=tuple(parse_outage(text) for text in fails),
        lost=lost or "resubmit",
        corrected=edits,
        profiles=_profiles(planned, profile),
        acceptance_length=acceptance_length,
        acceptance_mix=mix,
        targets=_targets(slo_ttft_ms, slo_tpot_ms),
        records=records is not None,
        spans=trace_out is not None,
    )
    why = no_boot(planned)
    if why is not None:
        output.note(f"perilune: {why}")
        return 1
    outputs = Outputs(html=html, plots=plots, trace=trace_out, records=records)
    outputs.refuse_unwritable([plan_file, load.trace, profile])
    with Progress(load.total) as progress, Interrupt() as interrupt:
        found = perform(planned, load, settings, progress=progress.update, stop=interrupt.came)
    try:
        outputs.write(found)  # first: who reads the summary may stop half-way
    finally:
        if as_json:
            output.emit_json(document(found))
        else:
            print_lines(summary(found))
    return _exit_code(found)


def _asked(
    plan_file: Path | None, given: dict[str, Any], traffic: dict[str, Any], seed: int
) -> tuple[Deployment, OfferedLoad]:
    """What is served, and with what: a choice is planned for the load, a plan file's workload fills its gaps."""
    from perilune.rehearse.offered import OfferedLoad

    traffic |= {"rate": given.pop("rate"), "seed": seed}
    lengths: dict[str, Any] = {name: given.pop(name) for name in ("isl", "osl", "concurrency")}
    if plan_file is None:
        if given["hardware"] is None:
            raise UnusableInput(
                "Say what to rehearse.",
                where="rehearse",
                fix="Give a plan file, or --hardware and what else plan takes; and --trace, --concurrency or --rate.",
            )
        if "trace" in traffic:  # lengths are what the plan is made for
            load = OfferedLoad(concurrency=lengths["concurrency"], **traffic)
            return deployment_of(None, given | lengths), load
        load = OfferedLoad(**lengths, **traffic)
        return deployment_of(None, given | lengths | {"isl": load.planned_isl}), load
    deployment = deployment_of(plan_file, given)
    planned = deployment.workload
    if "trace" not in traffic:
        lengths |= {"isl": lengths["isl"] or planned.isl, "osl": lengths["osl"] or planned.osl}
        if traffic["rate"] is None:
            lengths["concurrency"] = lengths["concurrency"] or planned.concurrency
    return deployment, OfferedLoad(**lengths, **traffic)


def _replicas(planned: Plan, alone: int | None, prefill: int | None, decode: int | None) -> dict[Role, int]:
    """Servers by role, where they were given."""
    found: dict[Role, int] = {}
    if alone is not None:
        if len(planned.pools) > 1:
            raise UnusableInput(
                f"The plan has {len(planned.pools)} pools.",
                where="--replicas",
                fix="Give --prefill-replicas and --decode-replicas.",
            )
        found[planned.pools[0].pool.role] = alone
    roles = [item.pool.role for item in planned.pools]
    pair: dict[Role, int | None] = {"prefill": prefill, "decode": decode}
    for role, number in pair.items():
        if number is None:
            continue
        if role not in roles:
            raise UnusableInput(
                f"This plan has no {role} pool.", where=f"--{role}-replicas", fix=f"It has: {' '.join(roles)}."
            )
        found[role] = number
    return found


def _mix(planned: Plan, length: float | None, mix: str | None) -> Mix:
    """The mix of acceptance lengths, where one was given; refuses what would do nothing."""
    from perilune.rehearse.acceptance import parse_mix

    flag = "--acceptance-length" if mix is None else "--acceptance-mix"
    if length is None and mix is None:
        return ()
    if not any(pool.resolved.values["speculative_algorithm"] for pool in planned.pools):
        raise UnusableInput("This plan does not speculate.", where=flag, fix="Leave it out.")
    if mix is None:
        return ()
    if length is not None:
        raise UnusableInput("A mix says all lengths.", where="--acceptance-length", fix="Give one of the two.")
    return parse_mix(mix)


def _profiles(planned: Plan, path: Path | None) -> dict[str, Efficient]:
    """Profiles of the plan's platforms: the file that was given, else those that `perilune calibrate` left."""
    from perilune.rehearse.timing.profile import calibrated

    found = {name: calibrated(name, path) for name in {item.pool.platform for item in planned.pools}}
    return {name: one for name, one in found.items() if one is not None}


def _router(name: str | None) -> PolicyName | None:
    from perilune.rehearse.fleet.policies import POLICIES

    if name is not None and name not in POLICIES:
        raise UnusableInput(f"{name!r} is no policy.", where="--router", fix=f"Known: {' '.join(POLICIES)}.")
    return cast("PolicyName | None", name)


def _targets(ttft_ms: float | None, tpot_ms: float | None) -> Targets | None:
    from perilune.rehearse.tally import Targets

    if ttft_ms is None and tpot_ms is None:
        return None
    return Targets(None if ttft_ms is None else ttft_ms / 1000, None if tpot_ms is None else tpot_ms / 1000)


def _exit_code(found: Rehearsal) -> int:
    if found.outcome.interrupted:
        return INTERRUPTED
    return int(not found.outcome.requests.completed or found.slo_met is False)
