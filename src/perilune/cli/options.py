"""Option types and options that several verbs share."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from perilune.errors import UnusableInput

F = TypeVar("F", bound=Callable[..., Any])

STDIN_CAP = 4 * 1024 * 1024


class Gib(click.ParamType[float]):
    """A finite memory size in GiB, above zero."""

    name = "GiB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of GiB.", param, ctx)
        if not math.isfinite(number) or not 0 < number <= 1 << 20:
            self.fail(f"{value!r} must be a finite number of GiB above 0.", param, ctx)
        return number


TOKENS = click.IntRange(1, 100_000_000)
REQUESTS = click.IntRange(1, 10_000_000)


def platform_option(function: F) -> F:
    """`--platform`: which accelerator and node shape."""
    return click.option(
        "--platform", "platform_name", required=True, metavar="ID",
        help="b300 gb300 b200 gb200 h200 h100 mi350x mi355x a3 950",
    )(function)  # fmt: skip


def model_options(function: F) -> F:
    """`--model-config` and `--draft-config`: local config.json files in place of the catalog's."""
    for name, text in (("draft", "the draft model"), ("model", "the model")):
        function = click.option(
            f"--{name}-config",
            type=click.Path(dir_okay=False, path_type=Path),
            help=f"config.json of {text}, where the catalog does not know it.",
        )(function)
    return function


def measured_options(function: F) -> F:
    """The two boot-log figures that make a prediction exact."""
    function = click.option(
        "--free-after-weights-gib", type=Gib(), metavar="GiB",
        help="Boot log: `Load weight end`, avail mem (lowest rank; after the draft's).",
    )(function)  # fmt: skip
    return click.option(
        "--free-before-load-gib", type=Gib(), metavar="GiB",
        help="Boot log: `Load weight begin`, avail mem (lowest rank).",
    )(function)  # fmt: skip


def workload_options(function: F) -> F:
    """Input and output length and the concurrency to admit."""
    function = click.option("--concurrency", type=REQUESTS, metavar="N", help="Requests to admit at once.")(function)
    function = click.option("--osl", type=TOKENS, metavar="TOKENS", help="Output tokens per request.")(function)
    return click.option("--isl", type=TOKENS, metavar="TOKENS", help="Input tokens per request.")(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def pasted_command(function: F) -> F:
    """The command line after `--`: tokens, one quoted string, or `-` for standard input."""
    return click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- [NAME=VALUE ...] sglang serve ...")(
        function
    )


def command_text(tokens: Sequence[str]) -> str | list[str]:
    """What to parse: the tokens, or text where one quoted string or standard input was given."""
    if not tokens:
        raise UnusableInput(
            "No command line was given.",
            fix="Put it after `--`, for example: -- sglang serve --tp-size 8 ...",
        )
    if list(tokens) == ["-"]:
        raw = sys.stdin.buffer.read(STDIN_CAP + 1)
        if len(raw) > STDIN_CAP:
            raise UnusableInput("The command line is over 4 MiB.", where="standard input")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise UnusableInput("The text is not UTF-8.", where=f"standard input, byte {error.start}") from None
    if len(tokens) == 1 and any(c.isspace() for c in tokens[0]):
        return tokens[0]
    return list(tokens)
