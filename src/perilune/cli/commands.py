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
@options.json_option
def commands(
    plan_file: Path | None, form: str, head_ip: str | None, nic: str | None, as_json: bool, **given: Any
) -> None:
    """The exact command of every node, head first, then the router's.

    Takes the same choice flags as `perilune plan`, or a plan file it wrote.
    Placeholders such as <node0-ip> stay until you give --head-ip and --nic.

    \b
    perilune commands --hardware b200 --mode unified --strategy balanced \\
        --head-ip 10.0.0.1 --nic eth0
    """
    from perilune.plan.compose import commands as blocks_of
    from perilune.plan.compose import placeholders_left

    blocks = blocks_of(deployment_of(plan_file, given), form, head_ip=head_ip, nic=nic)
    left = placeholders_left(blocks)
    if as_json:
        output.emit_json(
            {
                "form": form,
                "commands": [
                    {"pool": b.pool, "node": b.node, "argv": b.argv, "env": dict(b.env), "text": b.text} for b in blocks
                ],
                "placeholders": {place.token: place.means for place in left},
            }
        )
        return
    for block in blocks:
        where = block.pool if block.pool == "router" else f"{block.pool}, node {block.node}"
        click.echo(click.style(f"# {where}", bold=True))
        if block.node == 0:
            for comment in block.comments:
                click.echo(textwrap.fill(comment, output.WIDTH, initial_indent="# ", subsequent_indent="#   "))
        click.echo(block.text + "\n")
    if left:
        click.echo("# Still to fill in:")
        for place in left:
            click.echo(f"#   {place.token}: {place.means}")
