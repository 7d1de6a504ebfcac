"""The choice flags that `plan` and `commands` share, and the plan file that stands in for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from perilune.cli import options
from perilune.errors import UnusableInput
from perilune.plan.deployment import Deployment

F = TypeVar("F", bound=Callable[..., Any])

CHOICES = (
    ("--hardware", "b300 gb300 b200 gb200 h200 h100 mi350x mi355x a3 950"),
    ("--mode", "unified, pd (both roles and the router), prefill or decode"),
    ("--strategy", "low-latency, balanced or high-throughput"),
    ("--prefill-strategy", "default or long-context"),
    ("--quant", "mxfp4, nvfp4 or w4a8"),
    ("--spec", "none, dspark or dflash"),
    ("--vlm-transport", "auto or cpu"),
    ("--hicache", "off, l2 or l3"),
    ("--preset", "peak-throughput or peak-capacity, with --gpus"),
)
GPUS = "GPUs: the size of a preset, else the recipe's own; the most that a search may use."
REPEATED = (
    ("--set", "sets", "[ROLE:]FLAG[=VALUE]", "Write a flag over the recipe's."),
    ("--unset", "unsets", "[ROLE:]FLAG", "Remove a flag or a variable."),
    ("--env", "envs", "[ROLE:]NAME=VALUE", "Set an environment variable."),
    ("--knob", "knobs", "NAME=VALUE", "Turn one of the page's Playground knobs."),
)


def choice_options(function: F) -> F:
    """Attach the choice flags and the optional PLAN argument."""
    for flag, name, metavar, text in reversed(REPEATED):
        function = click.option(flag, name, multiple=True, metavar=metavar, help=text)(function)
    function = options.workload_options(function)
    function = click.option("--gpus", type=click.IntRange(1, 4096), metavar="N", help=GPUS)(function)
    for flag, text in reversed(CHOICES):
        function = click.option(flag, metavar="NAME", help=text)(function)
    return click.argument(
        "plan_file", required=False, metavar="[PLAN]", type=click.Path(dir_okay=False, path_type=Path)
    )(function)


def deployment_of(plan_file: Path | None, given: dict[str, Any]) -> Deployment:
    """Compose the choice, or read the plan file; raises UnusableInput when both or neither are given."""
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if plan_file is not None:
        from perilune.plan.planfile import read_plan

        if chosen:
            flags = {name: flag for flag, name, *_ in REPEATED}
            extra = ", ".join(flags.get(name, "--" + name.replace("_", "-")) for name in chosen)
            raise UnusableInput(
                f"A plan file already holds the choice, so {extra} cannot be given with it.",
                where=str(plan_file),
                fix="Edit the file, or leave it out.",
            )
        return read_plan(plan_file).redacted()
    if "hardware" not in chosen:
        raise UnusableInput(
            "Say which hardware to plan for.",
            where="--hardware",
            fix="For example: --hardware b300 --mode unified --strategy balanced.",
        )
    return _composed(chosen)


def _composed(chosen: dict[str, Any]) -> Deployment:
    from perilune.plan.compose import Choice, compose, parse_env, parse_knob, parse_set, parse_unset

    overrides = (
        *(parse_unset(text) for text in chosen.pop("unsets", ())),
        *(parse_set(text) for text in chosen.pop("sets", ())),
        *(parse_env(text) for text in chosen.pop("envs", ())),
    )
    knobs = tuple(parse_knob(text) for text in chosen.pop("knobs", ()))
    return compose(Choice(**chosen, overrides=overrides, knobs=knobs)).redacted()
