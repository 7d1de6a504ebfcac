"""`perilune commands`: the exact command of every node."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perilune.cli import options, output
from perilune.cli.choice import choice_options, deployment_of

if TYPE_CHECKING:
    from perilune.plan.planned import PlannedPool


@click.command()
@choice_options
@click.option("--form", type=click.Choice(["shell", "docker"]), default="shell", show_default=True)
@click.option("--head-ip", metavar="IP[,IP]", help="Address of each pool's first node: prefill, then decode.")
@click.option("--nic", metavar="NAME", help="Network interface that the nodes reach each other on.")
@click.option("--corrected", is_flag=True, help="Where the engine would refuse a pool, its variant that boots.")
@options.json_option
def commands(
    plan_file: Path | None,
    form: str,
    head_ip: str | None,
    nic: str | None,
    corrected: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """The exact command of every node, head first, then the router's.

    Takes the same choice flags as `perilune plan`, or a plan file it wrote.
    Placeholders such as <node0-ip> stay until you give --head-ip and --nic.
    What it prints is shell text, and `perilune check` knows its platform.
    Exit 1 when a pool would not start; what is printed then says so.

    \b
    perilune commands --hardware b200 --mode unified --strategy balanced \\
        --head-ip 10.0.0.1 --nic eth0
    """
    from perilune.plan.compose import commands as blocks_of
    from perilune.plan.compose import placeholders_left
    from perilune.plan.planned import plan
    from perilune.plan.sources.composed import header

    deployment = deployment_of(plan_file, given)
    planned = plan(deployment)
    if corrected:
        deployment = planned.corrected
        planned = plan(deployment)
    blocks = blocks_of(deployment, form, head_ip=head_ip, nic=nic)
    known = {place.token: place.means for place in placeholders_left(blocks)}
    known |= {unknown.placeholder: unknown.what for _, unknown in deployment.unpublished}
    left = {token: known.get(token, "your own value") for block in blocks for token in block.open}
    errors = [finding for finding in planned.findings if finding.severity == "error"]
    down = [pool for pool in planned.pools if not pool.ledger.boots]
    if as_json:
        output.emit_json(
            {
                "form": form,
                "commands": [
                    {"pool": b.pool, "node": b.node, "argv": b.argv, "env": dict(b.env), "text": b.text} for b in blocks
                ],
                "placeholders": left,
                "findings": [finding.to_json() for finding in errors],
            }
        )
        return int(bool(errors or down))
    for item in down:
        _comment(_warning(item))
    for note in deployment.notes:
        _comment(note)
    for finding in errors:
        _comment(f"error{f' in {finding.pool}' if finding.pool else ''}: {finding.message} {finding.fix}")
    above = ""
    for block in blocks:
        pool = deployment.pool(block.pool)
        if pool is not None and pool.platform != above:
            above = pool.platform
            click.echo(header(above))
        where = block.pool if block.pool == "router" else f"{block.pool}, node {block.node}"
        click.echo(click.style(f"# {where}", bold=True))
        if block.node == 0:
            for comment in block.comments:
                _comment(comment)
        click.echo(block.text + "\n")
    if left:
        click.echo("# Still to fill in:")
        for token, means in left.items():
            _comment(f"{token}: {means}", "  ")
    return int(bool(errors or down))


def _warning(item: PlannedPool) -> str:
    """That this pool does not start, and how to get the variant that does."""
    boots = item.correction is not None
    more = "--corrected prints a variant that boots." if boots else "No variant that boots is known."
    return f"WARNING: SGLang 0.5.23 does not start the {item.pool.role} pool with this command. {more}"


def _comment(text: str, indent: str = "") -> None:
    """A shell comment in lines that fit."""
    click.echo(
        textwrap.fill(
            text,
            output.WIDTH,
            initial_indent=f"# {indent}",
            subsequent_indent=f"#   {indent}",
            break_on_hyphens=False,
        )
    )
