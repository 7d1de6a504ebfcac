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
from perilune.facts.hardware import platform
from perilune.plan.rules.edits import in_words

if TYPE_CHECKING:
    from rich.console import Console

    from perilune.facts.hardware import Platform
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
    pool would not boot or admits fewer requests than asked. Beside a fix, `try`
    shows the options of this command that make it.

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
        _print(planned, composed=plan_file is None)
    wrong = [finding for finding in planned.findings if finding.severity in _counted(planned)]
    if wrong and target is not None and not as_json and not as_yaml:
        from perilune.cli.check_view import print_placed

        print_placed(wrong, err=True)
    return int(bool(wrong) or not all(pool.ledger.boots for pool in planned.pools))


def _counted(planned: Plan) -> tuple[str, ...]:
    """The severities that make a plan end in 1."""
    return ("error", "capacity") if planned.deployment.workload.concurrency else ("error",)


def _print(planned: Plan, *, composed: bool) -> None:
    from perilune.cli.findings_view import print_findings

    console = output.console()
    _heading(console, planned)
    for pool in planned.pools:
        _pool(console, planned, pool)
    console.print("\nFindings", style="bold")
    print_findings(console, planned.findings, options=composed)
    if not planned.findings:
        console.print("none")
    _commands(console, planned)
    _levers(console, planned)
    console.print()
    output.paragraph("Sources: " + "; ".join(planned.deployment.sources), style="dim")


def _heading(console: Console, planned: Plan) -> None:
    deployment, load = planned.deployment, planned.deployment.workload
    place = platform(deployment.pools[0].platform)
    many = _count(deployment.gpus, deployment.nodes, place)
    console.print(f"{deployment.model} on {place.label}: {many}", style="bold")
    if load.length is not None:
        asked = f", {load.concurrency} at once" if load.concurrency else ""
        console.print(f"for requests of {load.isl:,} + {load.osl:,} tokens{asked}")
    for note in deployment.notes:
        output.paragraph(note, style="dim")


def _pool(console: Console, planned: Plan, item: PlannedPool) -> None:
    from perilune.cli.ledger_view import calculator_row, print_ledger, refuses, result_rows, verdict
    from perilune.plan.display import shape_text

    pool, found, load = item.pool, item.ledger, planned.deployment.workload
    each, shape = f"{pool.replicas} × " if pool.replicas > 1 else "", shape_text(item.resolved.values)
    many = _count(pool.gpus, pool.nodes, platform(pool.platform))
    console.print(f"\n{pool.role} pool: {each}{many}, {shape}", style="bold")
    for note in pool.notes:
        output.paragraph(note, indent="- ")
    console.print()
    print_ledger(console, found, every_line=False)
    console.print()
    demand = None if load.isl is None or load.osl is None else (load.isl, load.osl)
    good = found.boots and not refuses(found, demand)
    output.paragraph(verdict(found, demand), style="bold green" if good else "bold red")
    if item.correction is not None:
        edits = in_words(item.correction.changes)
        output.paragraph(f"A variant that boots: {edits}. `perilune commands --corrected` prints it.")
    if found.boots:
        work = found.workload(*demand) if demand else None
        rows = [*result_rows(found, work), *calculator_row(found, demand)]
        console.print(output.table(("result", "value", "meaning"), rows, right=(1,)))
    _published(console, item)


def _published(console: Console, item: PlannedPool) -> None:
    if item.published:
        console.print("\nPublished of this recipe (measured, not predicted)", style="bold")
    held = item.ledger.sizing and item.ledger.sizing.slots
    for found in item.published:
        when = ", ".join(part for part in (found.engine and f"SGLang {found.engine}", found.date or "") if part)
        about = f" ({when})" if when else ""
        if found.differs:
            about += f", measured {', '.join(found.differs)}"
        if found.caps and held and item.ledger.inputs is not None:
            here = held // item.ledger.inputs.slots_per_request
            about += f"; the state pool here holds {here:,}, predicted" if found.differs else ""
        output.paragraph(f"{found.says}{about}", indent="  ")
    for caveat in dict.fromkeys(caveat for found in item.published for caveat in found.caveats):
        output.paragraph(caveat, indent="    ", style="dim")


def _levers(console: Console, planned: Plan) -> None:
    """One table a pool, then what is written for each lever and what comes with it, once for all pools."""
    from perilune.plan.memory.levers import Outcome

    told: dict[str, dict[str, list[str]]] = {}
    several = len(planned.pools) > 1
    for item in planned.pools:
        of = f" of the {item.pool.role} pool" if several else ""
        if not item.ledger.boots and all(effect.after.admitted is None for effect in item.levers):
            console.print(f"\nNo capacity lever{of} alone makes it boot.")
            continue
        console.print(f"\nCapacity levers{of}, each alone", style="bold")
        useful = [effect for effect in item.levers if effect.outcome is not Outcome.ALREADY]
        rows = [_lever(effect) for effect in useful if effect.outcome is not Outcome.NOTHING]
        if rows:
            console.print(output.table(("lever", "state holds", "KV tokens"), rows, right=(1, 2)))
        for outcome, said in ((Outcome.NOTHING, "Nothing changes with"), (Outcome.ALREADY, "The plan has already")):
            if names := [effect.lever.id for effect in item.levers if effect.outcome is outcome]:
                output.paragraph(f"{said}: {', '.join(names)}.", style="dim")
        for effect in useful:
            notes = told.setdefault(f"{effect.lever.id}: {effect.lever.written}", {})
            for note in filter(None, (effect.why, *effect.changes)):
                notes.setdefault(note, []).append(item.pool.role)
    if told:
        console.print()
    for lever, notes in told.items():
        parts = [lever]
        for note, roles in notes.items():
            whose = f"[{', '.join(roles)}] " if several and len(roles) < len(planned.pools) else ""
            parts.append(f"{whose}{note}")
        output.paragraph(" | ".join(parts), indent="- ", style="dim")


def _count(gpus: int, nodes: int, place: Platform) -> str:
    unit = place.unit if gpus == 1 else f"{place.unit}s"
    return f"{gpus} {unit} on {nodes} nodes" if nodes > 1 else f"{gpus} {unit} on one node"


def _lever(effect: Effect) -> tuple[str, str, str]:
    before, after = effect.before, effect.after
    return (
        effect.lever.id,
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
        click.echo(("" if block is blocks[0] else "\n") + click.style(f"# {where}", bold=True))
        click.echo(block.text)
    left = placeholders_left(blocks)
    if left:
        click.echo()
    for place in left:
        output.paragraph(f"# {place.token}: {place.means}")
