"""The flags that describe traffic, the same for `rehearse` and `sweep`, and the load that they describe."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perilune.cli import options
from perilune.errors import UnusableInput

if TYPE_CHECKING:
    from perilune.rehearse.offered import Replay, Talk

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.ParamType[float]):
    """A finite number above `least`, or from it on where `closed`, and at most `most`."""

    name = "number"

    def __init__(self, least: float = 0.0, most: float = math.inf, *, closed: bool = False) -> None:
        self._least, self._most, self._closed = least, most, closed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{str(value)[:60]!r} is not a number.", param, ctx)
        fits = self._least <= number <= self._most if self._closed else self._least < number <= self._most
        if not (fits and math.isfinite(number)):
            least = f"from {self._least:g}" if self._closed else f"above {self._least:g}"
            most = f" up to {self._most:,.0f}" if math.isfinite(self._most) else ""
            self.fail(f"{str(value)[:60]!r} must be a finite number {least}{most}.", param, ctx)
        return number


class ImageSize(click.ParamType[tuple[int, int]]):
    """Width and height in pixels, such as `1024x768`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        width, _, height = str(value).partition("x")
        if not (width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
            self.fail(f"{str(value)[:60]!r} is no size: write it like 1024x768.", param, ctx)
        if len(width) > 5 or len(height) > 5 or not int(width) or not int(height):
            self.fail(f"{value!r} must be from 1 to 99999 pixels each way.", param, ctx)
        return int(width), int(height)


POSITIVE: Final = Number()
RATE: Final = Number(most=1e6)
MILLISECONDS: Final = Number(most=1e9)

VALUES: Final[tuple[tuple[str, Any, str, str], ...]] = (
    ("--trace", click.Path(path_type=Path), "PATH", "Serve a recorded trace: a file, or a folder of WEKA sessions."),
    ("--trace-format", str, "NAME", "Of the trace, where its first lines do not tell."),
    ("--trace-speed", Number(most=1e6), "X", "Run the trace's clock X times as fast, think times too."),
    ("--requests", options.REQUESTS, "N", "How many requests; of a trace, the first N."),
    ("--random-range-ratio", Number(0, 1, closed=True), "X", "Draw lengths from X times the most upwards."),
    ("--arrival-cv", Number(0, 100, closed=True), "CV", "With --rate: how bursty; 1 is Poisson, over 1 bursts."),
    ("--images", click.IntRange(1, 1000), "N", "Images in every prompt, their tokens added to --isl."),
    ("--image-size", ImageSize(), "WxH", "Pixels of an image; 1024x1024 unless given."),
    ("--turns", click.IntRange(1, 10_000), "N", "Sessions of N turns; each adds --isl and --osl tokens."),
    ("--system-tokens", options.TOKENS, "TOKENS", "With --turns: a system prompt that sessions share."),
    ("--system-prompts", click.IntRange(1, 1_000_000), "N", "Different system prompts; 1 unless given."),
    ("--think-time", Number(0, 1e7, closed=True), "S", "Mean seconds from an answer to the next turn; 10."),
)
SWITCHES: Final = (
    ("--sort-trace", "Sort a trace that is out of order in time."),
    ("--no-spread", "Leave requests at the 3-second steps of a Mooncake trace."),
    ("--share-prefix", "WEKA and TraceLab sessions have their tool and system prompts in common."),
)
NAMES: Final = tuple(flag.removeprefix("--").replace("-", "_") for flag, *_ in (*VALUES, *SWITCHES))


def traffic_options(function: F) -> F:
    """What is asked of the fleet, beside --isl, --osl, --concurrency and --rate."""
    for flag, text in reversed(SWITCHES):
        function = click.option(flag, is_flag=True, help=text)(function)
    for flag, kind, metavar, text in reversed(VALUES):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    return function


def described(given: dict[str, Any]) -> dict[str, Any]:
    """Take the traffic flags out of `given`: what they say, as `OfferedLoad` names it. Raises UnusableInput."""
    flags = {name: given.pop(name) for name in NAMES}
    if flags["image_size"] is not None and flags["images"] is None:
        raise UnusableInput("No request has an image.", where="--image-size", fix="Give --images N, or leave it out.")
    named = ("trace", "trace_format", "requests", "arrival_cv", "images", "image_size")
    load = {name: flags[name] for name in named}
    load |= {"range_ratio": flags["random_range_ratio"], "replay": _replay(flags), "talk": _talk(flags)}
    return {name: value for name, value in load.items() if value is not None}


def _replay(flags: dict[str, Any]) -> Replay | None:
    from perilune.rehearse.offered import Replay

    speed = flags["trace_speed"]
    replay = Replay(
        sort=flags["sort_trace"],
        speed=1.0 if speed is None else speed,
        spread=not flags["no_spread"],
        share_prefix=flags["share_prefix"],
    )
    return None if replay == Replay() else replay


def _talk(flags: dict[str, Any]) -> Talk | None:
    from perilune.rehearse.offered import Talk

    of = {"system_tokens": "system_tokens", "system_prompts": "system_prompts", "think_s": "think_time"}
    more = {name: flags[flag] for name, flag in of.items() if flags[flag] is not None}
    if flags["turns"] is not None:
        if "system_prompts" in more and "system_tokens" not in more:
            raise UnusableInput("How long are they?", where="--system-prompts", fix="Give --system-tokens.")
        return Talk(turns=flags["turns"], **more)
    if more:
        flag = "--" + of[next(iter(more))].replace("_", "-")
        raise UnusableInput("It describes sessions of turns.", where=flag, fix="Give --turns N, or leave it out.")
    return None
