"""The options of `perilune rehearse`, in groups: traffic, fleet, reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from perilune.cli import options

F = TypeVar("F", bound=Callable[..., Any])

REPLICAS = click.IntRange(1, 10_000)
FILE = click.Path(dir_okay=False, path_type=Path)


class Positive(click.ParamType[float]):
    """A finite number above zero."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number.", param, ctx)
        if not math.isfinite(number) or number <= 0:
            self.fail(f"{value!r} must be a finite number above 0.", param, ctx)
        return number


class ImageSize(click.ParamType[tuple[int, int]]):
    """Width and height in pixels, such as `1024x768`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        width, _, height = str(value).partition("x")
        if not (width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
            self.fail(f"{value!r} is no size: write it like 1024x768.", param, ctx)
        if len(width) > 5 or len(height) > 5 or not int(width) or not int(height):
            self.fail(f"{value!r} must be from 1 to 99999 pixels each way.", param, ctx)
        return int(width), int(height)


POSITIVE = Positive()


def traffic_options(function: F) -> F:
    """What is asked of the fleet, beside --isl, --osl and --concurrency."""
    for flag, kind, metavar, text in reversed(
        (
            ("--trace", FILE, "FILE", "Serve a recorded trace, gzip or not."),
            ("--trace-format", str, "NAME", "Of the trace, where its first lines do not tell."),
            ("--rate", POSITIVE, "R", "Open loop: Poisson arrivals, R requests a second."),
            ("--requests", options.REQUESTS, "N", "How many requests; of a trace, the first N."),
            ("--images", click.IntRange(1, 1000), "N", "Images in every prompt, their tokens added to --isl."),
            ("--image-size", ImageSize(), "WxH", "Pixels of an image; 1024x1024 unless given."),
            ("--random-range-ratio", click.FloatRange(0, 1), "X", "Draw lengths from X times the most upwards."),
        )
    ):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    return function


def fleet_options(function: F) -> F:
    """What the fleet is, beyond its plan."""
    for flag, kind, metavar, text in reversed(
        (
            ("--replicas", REPLICAS, "N", "Servers of a plan with one pool."),
            ("--prefill-replicas", REPLICAS, "N", "Servers of the prefill pool."),
            ("--decode-replicas", REPLICAS, "N", "Servers of the decode pool."),
            ("--encoders", REPLICAS, "N", "Servers of one GPU that only encode images (EPD)."),
            ("--router", str, "POLICY", "cache_aware, round_robin, random or power_of_two."),
            ("--acceptance-length", POSITIVE, "A", "Tokens that a speculative step yields on average."),
            ("--profile", FILE, "FILE", "Step times from `perilune calibrate`."),
        )
    ):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    return click.option(
        "--fail", "fails", multiple=True, metavar="REPLICA@T+D", help="A server fails at T s and is back after D s."
    )(function)


def report_options(function: F) -> F:
    """What is written beside the summary."""
    for flag, kind, metavar, text in reversed(
        (
            ("--html", FILE, "FILE", "Write the report: one page, works offline."),
            ("--plots", click.Path(file_okay=False, path_type=Path), "DIR", "Write PNG plots."),
            ("--trace-out", FILE, "FILE", "Write a trace for ui.perfetto.dev."),
            ("--records", FILE, "FILE", "Write one line of JSON a request."),
        )
    ):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    return function
