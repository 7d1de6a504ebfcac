"""`perilune recipes`: what is published, and what each recipe allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from perilune.cli import options, output

if TYPE_CHECKING:
    from perilune.plan.compose import RecipeRow


@click.command()
@click.option("--hardware", metavar="ID", help="Only this platform.")
@click.option("--role", metavar="NAME", help="unified, prefill or decode.")
@click.option("--strategy", metavar="NAME", help="low-latency, balanced, high-throughput, default, long-context.")
@options.json_option
def recipes(hardware: str | None, role: str | None, strategy: str | None, as_json: bool) -> None:
    """List the published Kimi-K3 recipes, filtered."""
    from perilune.plan.compose import recipes as rows_of

    rows = rows_of(hardware, role, strategy)
    if as_json:
        output.emit_json({"recipes": [msgspec.to_builtins(row) for row in rows]})
        return
    console = output.console()
    cells = [(r.id, f"{r.nodes}×{r.gpus // r.nodes}", r.shape, " ".join(r.spec), _mark(r)) for r in rows]
    console.print(output.table(("recipe", "nodes", "shape", "speculation", ""), cells))
    console.print()
    for line in _legend(rows):
        console.print(line, style="dim", markup=False)


def _mark(row: RecipeRow) -> str:
    if row.completeness != "full":
        return "p"
    return "✓" if row.verification == "verified" else ""


def _legend(rows: tuple[RecipeRow, ...]) -> list[str]:
    lines = [f"{len(rows)} recipes. Plan one: perilune plan --hardware ID --mode MODE --strategy NAME"]
    marks = {_mark(row) for row in rows}
    if "✓" in marks:
        lines.append("✓  a published serving round on final weights; all others are to be verified")
    if "p" in marks:
        lines.append("p  parts of the command were never published; the plan names them")
    for quant in dict.fromkeys(name for row in rows for name in row.quant):
        names = dict.fromkeys(row.hardware for row in rows if quant in row.quant)
        lines.append(f"{quant} weights: {' '.join(names)}")
    return lines
