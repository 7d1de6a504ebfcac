"""`perilune resolve`: what SGLang makes of a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perilune.cli import options, output
from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.resolve.state import Resolved


@click.command()
@options.platform_option
@options.model_options
@click.option("--all", "show_all", is_flag=True, help="Show every field, not only what is not the default.")
@options.json_option
@options.pasted_command
def resolve(
    platform_name: str,
    model_config: Path | None,
    draft_config: Path | None,
    show_all: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """What SGLang 0.5.23 makes of a command line on a platform.

    Every default filled in, every rewrite with its reason, every rejection
    with its text. Exit 1 when the engine would refuse the command.

    \b
    perilune resolve --platform b300 -- sglang serve \\
        --model-path moonshotai/Kimi-K3 --tp-size 8 --dcp-size 8
    """
    resolved = resolve_command(command, platform_name, model_config, draft_config)
    if as_json:
        output.emit_json(to_json(resolved))
    if resolved.stage == "parse":
        raise UnusableInput(str(resolved.error), where="command line")
    if not as_json:
        _print(resolved, show_all)
    return 0 if resolved.accepted else 1


def resolve_command(
    command: tuple[str, ...], platform_name: str, model_config: Path | None, draft_config: Path | None
) -> Resolved:
    """Parse the pasted command and resolve it; the catalog's config unless a file is given."""
    from perilune.plan.model.config import load_config_file
    from perilune.plan.resolve import resolve as run
    from perilune.plan.server import Server

    server = Server.parse(options.command_text(command))
    return run(
        server,
        platform(platform_name),
        model=load_config_file(model_config) if model_config else None,
        draft=load_config_file(draft_config) if draft_config else None,
    )


def to_json(resolved: Resolved) -> dict[str, Any]:
    """The contract of `resolve --json`; `resolved` has every field under SGLang's own name."""
    return {
        "accepted": resolved.accepted,
        "error": resolved.error,
        "stage": resolved.stage,
        "engine": "SGLang 0.5.23",
        "platform": resolved.platform.id,
        "model": resolved.model.path,
        "resolved": dict(resolved.values),
        "rewrites": [
            {"field": r.field, "from": r.before, "to": r.after, "reason": r.reason} for r in resolved.rewrites
        ],
        "warnings": list(resolved.warnings),
    }


def _print(resolved: Resolved, show_all: bool) -> None:
    console = output.console()
    verdict = "accepts" if resolved.accepted else "refuses"
    console.print(f"SGLang 0.5.23 {verdict} this command on {resolved.platform.label}.", style="bold")
    if resolved.error:
        console.print(f"{resolved.error}", style="red", markup=False)
    changed = [r for r in resolved.rewrites if r.field in resolved.given]
    filled = [r for r in resolved.rewrites if r.field not in resolved.given]
    for title, rewrites in (("Rewritten though you wrote it", changed), ("Filled in", filled)):
        if rewrites:
            console.print(f"\n{title}", style="bold")
            rows = [(r.field, f"{_short(r.before)} → {_short(r.after)}", r.reason) for r in rewrites]
            console.print(output.table(("field", "value", "why"), rows))
    if resolved.warnings:
        console.print("\nWarnings at start-up", style="bold")
        for line in dict.fromkeys(resolved.warnings):
            console.print(f"- {line}", markup=False)
    if show_all:
        console.print("\nEvery field", style="bold")
        console.print(output.table(("field", "value"), [(k, _short(v, 200)) for k, v in resolved.values.items()]))


def _short(value: Any, limit: int = 40) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
