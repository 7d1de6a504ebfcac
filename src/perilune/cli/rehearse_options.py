"""The options of `perilune rehearse` beside its traffic: the fleet, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from perilune.cli.rehearse_traffic import POSITIVE

F = TypeVar("F", bound=Callable[..., Any])

REPLICAS = click.IntRange(1, 10_000)
FILE = click.Path(dir_okay=False, path_type=Path)


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
            ("--acceptance-mix", str, "A:N,...", "Requests that differ: N of all get A tokens a step."),
            ("--profile", FILE, "FILE", "Step times from `perilune calibrate`."),
        )
    ):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    function = click.option(
        "--corrected", is_flag=True, help="Where a pool would not boot, rehearse its variant that does."
    )(function)
    function = click.option(
        "--lost",
        type=click.Choice(("resubmit", "router", "fail")),
        help="Requests of a server that fails: all start over (default), only those without output, or none.",
    )(function)
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
