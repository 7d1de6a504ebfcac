"""`perilune explain`: the derivation of one figure."""

from __future__ import annotations

from pathlib import Path

import click

from perilune.cli import options, output
from perilune.errors import UnusableInput
from perilune.plan.memory import Ledger, Measured, ledger


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--plan", "plan_file", type=click.Path(dir_okay=False, path_type=Path), help="A plan file.")
@click.option("--pool", "role", metavar="ROLE", help="The pool of the plan, where it has several.")
@click.option("--platform", "platform_name", metavar="ID", help="Platform of a pasted command.")
@options.measured_options
@options.model_options
@options.pasted_command
def explain(
    name: str,
    plan_file: Path | None,
    role: str | None,
    platform_name: str | None,
    free_before_load_gib: float | None,
    free_after_weights_gib: float | None,
    model_config: Path | None,
    draft_config: Path | None,
    command: tuple[str, ...],
) -> int:
    """Derive one figure: its formula with the numbers put in, and its source.

    NAME is a result, or a part of the ledger as `memory` shows it.
    `perilune explain list ...` names every figure there is.

    \b
    perilune explain max_running_requests --plan plan.yaml
    perilune explain kv_budget_gib --platform b300 -- sglang serve ...
    """
    from perilune.cli.memory import measured_of
    from perilune.plan.memory import derive

    measured = measured_of(free_before_load_gib, free_after_weights_gib)
    if plan_file is not None:
        if platform_name or model_config or draft_config or command:
            raise UnusableInput("A plan file and a pasted command cannot both be explained.", where=str(plan_file))
        found = _from_plan(plan_file, role, measured)
    elif platform_name is None:
        raise UnusableInput(
            "Say what to explain.",
            where="explain",
            fix="Give --plan FILE, or --platform ID -- sglang serve ...",
        )
    else:
        from perilune.cli.resolve import read_server, refuse_unparsed, resolve_server

        resolved = resolve_server(read_server(command), platform_name, model_config, draft_config)
        refuse_unparsed(resolved)
        found = ledger(resolved, measured)
    if name == "list":
        for figure in found.figures.values():
            _echo(f"{figure.name}  {figure.label} = {figure.shown}")
    else:
        names = {figure.label: figure.name for figure in found.figures.values()}
        for line in derive(found, names.get(name, name)).split("\n"):
            _echo(line)
    return 0 if found.boots else 1


def _echo(line: str) -> None:
    """A line that keeps its indent where it is wrapped."""
    indent = " " * (len(line) - len(line.lstrip()))
    click.echo("\n".join(indent + part for part in output.wrapped(line.strip(), "    ", len(indent))))


def _from_plan(path: Path, role: str | None, measured: Measured | None) -> Ledger:
    from perilune.plan.planfile import read_plan
    from perilune.plan.planned import plan

    deployment = read_plan(path)
    roles = [pool.role for pool in deployment.pools]
    if role is None and len(roles) == 1:
        role = roles[0]
    if role not in roles:
        said = f"It has no {role!r} pool." if role else f"It has {len(roles)} pools."
        raise UnusableInput(said, where=str(path), fix=f"Name one with --pool: {' '.join(roles)}.")
    pools = plan(deployment, {role: measured} if measured else None).pools
    return next(pool.ledger for pool in pools if pool.pool.role == role)
