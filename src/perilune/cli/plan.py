"""`perilune plan`: everything a first boot needs, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perilune.cli import options, output
from perilune.cli.choice import choice_options, deployment_of
from perilune.cli.memory import measured_of
from perilune.cli.search import search_options, searched
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from rich.console import Console

    from perilune.plan.memory.levers import Effect
    from perilune.plan.planned import Plan, PlannedPool


@click.command()
@choice_options
@options.measured_options
@search_options
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plan (.yaml or .json).",
)
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the plan as YAML.")
@options.json_option
def plan(
    plan_file: Path | None,
    free_before_load_gib: float | None,
    free_after_weights_gib: float | None,
    target: Path | None,
    as_yaml: bool,
    as_json: bool,
    searching: bool,
    ttft_ms: float | None,
    tpot_ms: float | None,
    percentile: str | None,
    jobs: int | None,
    **given: Any,
) -> int:
    """Plan a deployment: topology, memory, admitted requests, levers, commands.

    Takes choice flags, or a plan file that it wrote before. Exit 1 when some
    pool would not boot or admits fewer requests than asked.

    --search tries every shape of the hardware and the targets, and shows the
    cheapest and the rejected; exit 1 when none meets the targets.

    \b
    perilune plan --hardware b300 --mode unified --strategy balanced \\
        --isl 8192 --osl 1024 --concurrency 64 -o plan.yaml
    """
    from perilune.plan.planfile import plan_yaml, write_plan
    from perilune.plan.planned import plan as read_through

    targets = {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "percentile": percentile}
    if searching:
        if plan_file is not None or free_before_load_gib is not None or free_after_weights_gib is not None:
            raise UnusableInput(
                "A search plans every shape itself.", where="--search", fix="Give choice flags and a workload alone."
            )
        return searched(target, as_yaml=as_yaml, as_json=as_json, jobs=jobs, **targets, **given)
    if any(value is not None for value in (*targets.values(), jobs)):
        raise UnusableInput("Targets are for a search.", where="--ttft-ms, --tpot-ms", fix="Add --search.")
    deployment = deployment_of(plan_file, given)
    measured = measured_of(free_before_load_gib, free_after_weights_gib)
    if measured and len(deployment.pools) > 1:
        raise UnusableInput(
            f"One boot log cannot speak for {len(deployment.pools)} pools.",
            where="--free-before-load-gib",
            fix="Plan one role at a time: --mode prefill, --mode decode.",
        )
    planned = read_through(deployment, {pool.role: measured for pool in deployment.pools} if measured else None)
    if target is not None:
        write_plan(planned, target)
        output.note(f"Wrote {target}.")
    if as_json:
        output.emit_json(planned.to_json())
    elif as_yaml:
        click.echo(plan_yaml(planned), nl=False)
    elif target is None:
        _print(planned)
    counts = ("error", "capacity") if deployment.workload.concurrency else ("error",)
    return int(any(finding.severity in counts for finding in planned.findings))


def _print(planned: Plan) -> None:
    from perilune.cli.findings_view import print_findings

    console = output.console()
    _heading(console, planned)
    for pool in planned.pools:
        _pool(console, planned, pool)
    console.print("\nFindings", style="bold")
    print_findings(console, planned.findings)
    if not planned.findings:
        console.print("none")
    _commands(console, planned)
    output.paragraph("Sources: " + "; ".join(planned.deployment.sources), style="dim")


def _heading(console: Console, planned: Plan) -> None:
    from perilune.facts.hardware import platform

    deployment, load = planned.deployment, planned.deployment.workload
    label = platform(deployment.pools[0].platform).label
    console.print(f"{deployment.model} on {label}: {_count(deployment.gpus, deployment.nodes)}", style="bold")
    if load.length is not None:
        asked = f", {load.concurrency} at once" if load.concurrency else ""
        console.print(f"for requests of {load.isl:,} + {load.osl:,} tokens{asked}")
    for note in deployment.notes:
        output.paragraph(note, style="dim")


def _pool(console: Console, planned: Plan, item: PlannedPool) -> None:
    from perilune.cli.ledger_view import calculator_row, print_ledger, result_rows, verdict
    from perilune.plan.display import shape_text

    pool, found, load = item.pool, item.ledger, planned.deployment.workload
    each, shape = f"{pool.replicas} × " if pool.replicas > 1 else "", shape_text(item.resolved.values)
    console.print(f"\n{pool.role} pool: {each}{_count(pool.gpus, pool.nodes)}, {shape}", style="bold")
    for note in pool.notes:
        output.paragraph(note, indent="- ")
    console.print()
    print_ledger(console, found, every_line=False)
    console.print()
    work = None if load.isl is None or load.osl is None or not found.boots else found.workload(load.isl, load.osl)
    output.paragraph(verdict(found, work), style="bold green" if found.boots else "bold red")
    if found.boots:
        demand = None if load.isl is None or load.osl is None else (load.isl, load.osl)
        rows = [*result_rows(found, work), *calculator_row(found, demand)]
        console.print(output.table(("result", "value", "meaning"), rows, right=(1,)))
    _published(console, item)
    if item.correction is not None:
        output.paragraph(
            "A variant that boots: " + "; ".join(item.correction.edits) + ". `perilune commands --corrected` prints it."
        )
    _levers(console, item)


def _published(console: Console, item: PlannedPool) -> None:
    if item.published:
        console.print("\nPublished of this recipe (measured, not predicted)", style="bold")
    for found in item.published:
        when = ", ".join(part for part in (found.engine and f"SGLang {found.engine}", found.date or "") if part)
        output.paragraph(f"{found.says}{f' ({when})' if when else ''}", indent="  ")
    for caveat in dict.fromkeys(caveat for found in item.published for caveat in found.caveats):
        output.paragraph(caveat, indent="    ", style="dim")


def _levers(console: Console, item: PlannedPool) -> None:
    from perilune.plan.memory.levers import Outcome

    if not item.ledger.boots and all(effect.after.admitted is None for effect in item.levers):
        console.print("\nNo capacity lever alone makes this pool boot.")
        return
    console.print("\nCapacity levers on this pool", style="bold")
    useful = [effect for effect in item.levers if effect.outcome is not Outcome.ALREADY]
    rows = [_lever(effect) for effect in useful]
    console.print(output.table(("lever, each alone", "state holds", "KV tokens"), rows, right=(1, 2)))
    have = [effect.lever.written for effect in item.levers if effect.outcome is Outcome.ALREADY]
    if have:
        output.paragraph(f"The plan has already: {', '.join(have)}.", style="dim")
    for effect in useful:
        for note in (effect.why, *effect.changes):
            if note:
                output.paragraph(f"{effect.lever.written}: {note}", indent="  ", style="dim")


def _count(gpus: int, nodes: int) -> str:
    return f"{gpus} GPUs on {nodes} nodes" if nodes > 1 else f"{gpus} GPUs on one node"


def _short(effect: Effect) -> str:
    """A lever without the start that all of them share; the notes below write it in full."""
    return effect.lever.written.removeprefix("--").removeprefix("SGLANG_OPT_")


def _lever(effect: Effect) -> tuple[str, str, str]:
    before, after = effect.before, effect.after
    return (
        _short(effect),
        _change(before.by_state, after.by_state),
        _change(before.tokens, after.tokens),
    )


def _change(before: int | None, after: int | None) -> str:
    if after is None:
        return "refused" if before is not None else "-"
    return f"{after:,}" if before in (None, after) else f"{before:,} → {after:,}"


def _commands(console: Console, planned: Plan) -> None:
    from perilune.plan.compose import commands, placeholders_left

    blocks = commands(planned.deployment)
    console.print("\nCommands", style="bold")
    for block in blocks:
        if block.node:
            continue
        nodes = next((p.pool.nodes for p in planned.pools if p.pool.role == block.pool), 1)
        where = block.pool if nodes == 1 else f"{block.pool}, node 0 of {nodes} (--node-rank counts up)"
        click.echo(click.style(f"# {where}", bold=True))
        click.echo(block.text + "\n")
    for place in placeholders_left(blocks):
        click.echo(f"# {place.token}: {place.means}")
