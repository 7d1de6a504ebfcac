"""`perilune resolve`: what SGLang makes of a command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from perilune.cli import options, output
from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.resolve.state import Resolved, Rewrite
from perilune.plan.server import Server

LONGEST = 200  # characters of a value on the screen


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
    with its text. Exit 1 when the engine would refuse the command, its parser
    included.

    \b
    perilune resolve --platform b300 -- sglang serve \\
        --model-path moonshotai/Kimi-K3 --tp-size 8 --dcp-size 8
    """
    resolved = resolve_server(read_server(command), platform_name, model_config, draft_config)
    if as_json:
        output.emit_json(to_json(resolved))
    else:
        _print(resolved, show_all)
    return 0 if resolved.accepted else 1


def read_server(command: tuple[str, ...]) -> Server:
    """The pasted command as a value, its secrets hidden before anything else sees them."""
    return Server.parse(options.command_text(command)).redacted()


def resolve_server(
    server: Server, platform_name: str, model_config: Path | None, draft_config: Path | None
) -> Resolved:
    """Resolve on a platform; the catalog's configs unless files are given.

    A command without --model-path is taken to serve Kimi-K3, and that is said: the engine itself needs the flag.
    """
    from perilune.plan.model import known_config, load_config_file
    from perilune.plan.resolve import DEFAULT_MODEL
    from perilune.plan.resolve import resolve as run

    model = load_config_file(model_config) if model_config else None
    if model is None and not server.has("--model-path") and not server.has("--config"):
        output.note(f"perilune: no --model-path, which SGLang needs; taken to be {DEFAULT_MODEL}.")
        model = known_config(DEFAULT_MODEL)
    draft = load_config_file(draft_config) if draft_config else None
    return run(server, platform(platform_name), model=model, draft=draft)


def refuse_unparsed(resolved: Resolved) -> None:
    """Raise UnusableInput where the engine's parser would stop, with what to write instead."""
    if resolved.stage == "parse":
        raise UnusableInput(f"{resolved.error}.", where="command line", fix=" ".join(resolved.warnings))


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
        output.paragraph(resolved.error, style="red")
    if resolved.stage == "parse":
        for line in resolved.warnings:
            output.paragraph(line)
        return
    changed = [r for r in resolved.rewrites if r.field in resolved.given]
    filled = [r for r in resolved.rewrites if r.field not in resolved.given and (show_all or _matters(r))]
    for title, rewrites in (("Changed though you wrote it", changed), ("Chosen for you", filled)):
        if rewrites:
            console.print(f"\n{title}", style="bold")
            for rewrite in rewrites:
                _print_rewrite(rewrite, said=rewrite.field in resolved.given)
    if resolved.warnings:
        console.print("\nWarnings at start-up", style="bold")
        for line in dict.fromkeys(resolved.warnings):
            output.paragraph(line, indent="- ")
    if show_all:
        console.print("\nEvery field", style="bold")
        for name, value in resolved.values.items():
            output.paragraph(f"{name} = {_text(value)}", indent="  ")
    else:
        console.print("\n--all shows every field and every default.", style="dim")


def _matters(rewrite: Rewrite) -> bool:
    """Whether a filled-in value says more than that a default is a default."""
    return not rewrite.field.startswith("_") and rewrite.after not in (None, False, {}, []) and bool(rewrite.reason)


def _print_rewrite(rewrite: Rewrite, *, said: bool) -> None:
    before = f"{_text(rewrite.before)} → " if said else ""
    for name, was, now in _parts(rewrite):
        shown = f"{_text(was)} → {_text(now)}" if said else _text(now)
        output.paragraph(f"{name} = {shown}", indent="  ")
    if not list(_parts(rewrite)):
        output.paragraph(f"{rewrite.field} = {before}{_text(rewrite.after)}", indent="  ")
    output.paragraph(rewrite.reason, indent="      ", style="dim")


def _parts(rewrite: Rewrite) -> Iterator[tuple[str, Any, Any]]:
    """The leaves that differ between two structured values, by dotted name."""
    before, after = (msgspec.to_builtins(value) for value in (rewrite.before, rewrite.after))
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _leaves(rewrite.field, before, after)


def _leaves(name: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key, now in after.items():
        was = before.get(key)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _leaves(f"{name}.{key}", was, now)
        elif was != now and not isinstance(now, list | tuple):
            yield f"{name}.{key}", was, now


def _text(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
