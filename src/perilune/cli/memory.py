"""`perilune memory`: the ledger of any command line."""

from __future__ import annotations

from pathlib import Path

import click

from perilune.cli import options, output
from perilune.errors import UnusableInput
from perilune.plan.memory import Demand, Ledger, Measured, ledger
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
    --osl and --concurrency it also says which split admits them.

    \b
    perilune memory --platform b300 --isl 8192 --osl 1024 --concurrency 64 \\
        -- sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8
    """
    from perilune.cli.resolve import read_server, refuse_unparsed, resolve_server

    if (isl is None) != (osl is None):
        raise UnusableInput("One length alone says nothing.", where="--isl", fix="Give --isl and --osl.")
    measured = measured_of(free_before_load_gib, free_after_weights_gib)
    server = read_server(command)
    resolved = resolve_server(server, platform_name, model_config, draft_config)
    found = ledger(resolved, measured)
    demand = None if isl is None or osl is None else (isl, osl)
    if as_json:
        document = found.to_json(demand)
        if concurrency is not None and found.inputs is not None:
            document["split"] = split_json(found, Demand(concurrency, sum(demand or (1, 0))))
        output.emit_json(document)
    refuse_unparsed(resolved)
    if not as_json:
        _print(found, demand, concurrency, server, measured)
    return 0 if found.boots else 1


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


def split_json(found: Ledger, demand: Demand) -> dict[str, object]:
    """Which splits admit a demand."""
    from perilune.plan.memory import split_for

    assert found.inputs is not None  # noqa: S101 - the caller has looked
    split = split_for(found.inputs, demand)
    return {
        "concurrency": demand.concurrency,
        "tokens_per_request": demand.tokens,
        "admitted": split.admitted,
        "most": split.most,
        "short_gib": split.short_gib,
        "max_mamba_cache_size": split.slots and [split.slots.low, split.slots.high],
        "mamba_full_memory_ratio": split.ratios and [float(split.ratios.low), float(split.ratios.high)],
        "max_running_requests": split.asked,
    }


def _print(
    found: Ledger,
    demand: tuple[int, int] | None,
    concurrency: int | None,
    server: Server,
    measured: Measured | None,
) -> None:
    from perilune.cli.ledger_view import print_ledger, result_rows, verdict
    from perilune.plan.rules import Subject, findings_of

    console = output.console()
    print_ledger(console, found, every_line=True)
    load = found.workload(*demand) if demand and found.boots else None
    console.print()
    output.paragraph(verdict(found), style="bold green" if found.boots else "bold red")
    if found.boots:
        console.print(output.table(("result", "value", "meaning"), result_rows(found, load), right=(1,)))
    from perilune.plan.deployment import Workload

    isl, osl = demand or (None, None)
    asked = Workload(isl, osl, concurrency)
    subject = Subject(server, found.resolved, found, asked, measured)
    findings = [finding for finding in findings_of(subject) if finding.severity in ("error", "capacity")]
    if findings:
        from perilune.cli.findings_view import print_findings

        console.print()
        print_findings(console, findings)
    console.print(
        "\n~ predicted, p published; all others exact. `perilune explain NAME` derives a figure.", style="dim"
    )
