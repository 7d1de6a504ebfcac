"""`perilune commands`: the exact command of every node."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from perilune.cli import options, output
from perilune.cli.choice import choice_options, deployment_of


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

    \b
    perilune commands --hardware b200 --mode unified --strategy balanced \\
        --head-ip 10.0.0.1 --nic eth0
    """
    from perilune.plan.compose import commands as blocks_of
    from perilune.plan.compose import placeholders_left
    from perilune.plan.planned import plan
    from perilune.plan.sources.composed import header

    deployment = deployment_of(plan_file, given)
    if corrected:
        deployment = plan(deployment).corrected
    blocks = blocks_of(deployment, form, head_ip=head_ip, nic=nic)
    known = {place.token: place.means for place in placeholders_left(blocks)}
    known |= {unknown.placeholder: unknown.what for _, unknown in deployment.unpublished}
    left = {token: known.get(token, "your own value") for block in blocks for token in block.open}
    errors = [finding for finding in plan(deployment).findings if finding.severity == "error"]
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
        return int(bool(errors))
    for note in deployment.notes:
        click.echo(textwrap.fill(note, output.WIDTH, initial_indent="# ", subsequent_indent="#   "))
    for finding in errors:
        said = f"error{f' in {finding.pool}' if finding.pool else ''}: {finding.message} {finding.fix}"
        click.echo(textwrap.fill(said, output.WIDTH, initial_indent="# ", subsequent_indent="#   "))
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
                click.echo(textwrap.fill(comment, output.WIDTH, initial_indent="# ", subsequent_indent="#   "))
        click.echo(block.text + "\n")
    if left:
        click.echo("# Still to fill in:")
        for token, means in left.items():
            told = f"{token}: {means}"
            click.echo(textwrap.fill(told, output.WIDTH, initial_indent="#   ", subsequent_indent="#     "))
    return int(bool(errors))
