"""`perilune memory`: the ledger of any command line."""

from __future__ import annotations

from pathlib import Path

import click

from perilune.cli import options, output
from perilune.errors import UnusableInput
from perilune.plan.deployment import Workload
from perilune.plan.memory import Demand, Ledger, Measured, ledger
from perilune.plan.rules import Finding, Subject, findings_of
from perilune.plan.server import Server


@click.command()
@options.platform_option
@options.measured_options
@options.workload_options
@options.model_options
@options.json_option
@options.pasted_command
def memory(
    platform_name: str,
    free_before_load_gib: float | None,
    free_after_weights_gib: float | None,
    isl: int | None,
    osl: int | None,
    concurrency: int | None,
    model_config: Path | None,
    draft_config: Path | None,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """The memory ledger of an `sglang serve` command line, and what it admits.

    With both boot-log figures the result equals SGLang 0.5.23's own; without
    them it is predicted from the model's geometry, and says so. With --isl,
    --osl and --concurrency it also says which split admits them. Exit 1 when
    the engine would refuse the command, or admits fewer than --concurrency.

    \b
    perilune memory --platform b300 --isl 8192 --osl 1024 --concurrency 64 \\
        -- sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8
    """
    from perilune.cli.resolve import read_server, resolve_server

    if (isl is None) != (osl is None):
        raise UnusableInput("One length alone says nothing.", where="--isl", fix="Give --isl and --osl.")
    if concurrency is not None and isl is None:
        raise UnusableInput("How long are the requests?", where="--concurrency", fix="Give --isl and --osl.")
    measured = measured_of(free_before_load_gib, free_after_weights_gib)
    server = read_server(command)
    resolved = resolve_server(server, platform_name, model_config, draft_config)
    found = ledger(resolved, measured)
    subject = Subject(server, resolved, found, Workload(isl, osl, concurrency), measured)
    findings = [one for one in findings_of(subject) if one.severity in ("error", "capacity")]
    demand = None if isl is None or osl is None else (isl, osl)
    if as_json:
        document = found.to_json(demand)
        document["calculator"] = demand and calculator_json(found, sum(demand))
        if concurrency is not None and demand is not None and found.inputs is not None and found.boots:
            document["split"] = split_json(server, found, Demand(concurrency, sum(demand)), measured)
        document["findings"] = [finding.to_json() for finding in findings]
        output.emit_json(document)
    else:
        _print(found, demand, findings)
    counts = ("error", "capacity") if concurrency is not None else ("error",)
    return int(not found.boots or any(finding.severity in counts for finding in findings))


def measured_of(before: float | None, after: float | None) -> Measured | None:
    """Both boot-log figures, or none; raises UnusableInput for one alone."""
    if before is None and after is None:
        return None
    if before is None or after is None:
        raise UnusableInput(
            "One boot-log figure alone cannot size the pools.",
            where="--free-before-load-gib, --free-after-weights-gib",
            fix="Give both, or neither for a prediction.",
        )
    return Measured(before, after)


def calculator_json(found: Ledger, tokens: int) -> dict[str, object] | None:
    """The page's ratio for this request length, beside the ratios that this memory really admits."""
    from perilune.plan.memory.calculator import read_calculator

    reading = read_calculator(found, tokens)
    if reading is None:
        return None
    return {
        "tokens_per_request": reading.tokens,
        "present_ratio": reading.present,
        "page_ratio": reading.page,
        "most_requests": reading.most,
        "best_ratios": reading.best and [float(reading.best.low), float(reading.best.high)],
    }


def split_json(server: Server, found: Ledger, demand: Demand, measured: Measured | None) -> dict[str, object]:
    """Which splits admit a demand, or the levers that would, cheapest first."""
    from perilune.plan.memory.levers import advise

    advice = advise(server, found, demand, measured)
    split = advice.split
    return {
        "concurrency": demand.concurrency,
        "tokens_per_request": demand.tokens,
        "admitted": split.admitted,
        "most": split.most,
        "short_gib": split.short_gib,
        "max_mamba_cache_size": split.slots and [split.slots.low, split.slots.high],
        "mamba_full_memory_ratio": split.ratios and [float(split.ratios.low), float(split.ratios.high)],
        "max_running_requests": split.asked,
        "levers": [
            {"lever": step.lever.written, "alone": step.alone, "together": step.together} for step in advice.steps
        ],
        "reached": advice.reached,
    }


def _print(found: Ledger, demand: tuple[int, int] | None, findings: list[Finding]) -> None:
    from perilune.cli.findings_view import print_findings
    from perilune.cli.ledger_view import calculator_row, print_ledger, refuses, result_rows, verdict

    console = output.console()
    if found.stages:
        print_ledger(console, found, every_line=True)
        console.print()
    good = found.boots and not refuses(found, demand)
    output.paragraph(verdict(found, demand), style="bold green" if good else "bold red")
    if found.boots:
        load = found.workload(*demand) if demand else None
        rows = [*result_rows(found, load), *calculator_row(found, demand)]
        console.print(output.table(("result", "value", "meaning"), rows, right=(1,)))
    if findings:
        console.print()
        print_findings(console, findings)
    if found.stages:
        console.print("\n~ predicted, p published, others computed.", style="dim")
        console.print("`perilune explain NAME` derives a figure; NAME is a part or a result.", style="dim")
