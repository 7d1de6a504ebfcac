"""The published runs as targets: each card's recipe, composed as it was measured."""

from __future__ import annotations

from functools import cache
from typing import Final

from perilune.facts.measurements import Card, Point, measurements
from perilune.plan.compose import Choice, compose, parse_set
from perilune.plan.deployment import Role
from perilune.plan.planned import Plan, plan
from perilune.rehearse.calibration.fit import Seen, Target

ROOM: Final = {"mi350x/unified/balanced": ("--mem-fraction-static=0.92",)}
"""Flags that give a recipe of today the room its published run had.

The MI350X runs predate the recipe. At concurrency 64 TTFT + 1,023 x TPOT is 90.7 s, and 320 requests at 813 tokens/s
a GPU take 453 s: five waves of 64, all admitted at once. Today's recipe admits fewer.
"""

MS: Final = 1000.0


@cache
def published_targets(*, room: bool = True) -> tuple[Target, ...]:
    """Every point of every card; without `room`, in the recipe as it is today."""
    return tuple(_target(card, point, room) for card in measurements().cards for point in card.points)


def settings_of(card: Card, *, room: bool = True) -> tuple[str, ...]:
    """What the published run had on top of its recipe, as `--set` takes it."""
    added = card.added.split()
    pairs = [f"{flag}={value}" for flag, value in zip(added[::2], added[1::2], strict=True)]
    return (*pairs, *(ROOM.get(card.cell, ()) if room else ()))


@cache
def _plan(hardware: str, mode: Role, strategy: str, quant: str, spec: str, sets: tuple[str, ...]) -> Plan:
    overrides = tuple(parse_set(text) for text in sets)
    choice = Choice(hardware=hardware, mode=mode, strategy=strategy, quant=quant, spec=spec, overrides=overrides)
    return plan(compose(choice))


def _target(card: Card, point: Point, room: bool) -> Target:
    method = measurements().method
    hardware, _, strategy = card.cell.split("/")
    return Target(
        name=f"{hardware} {strategy} {card.quant} {card.spec}",
        plan=_plan(hardware, "unified", strategy, card.quant, card.spec, settings_of(card, room=room)),
        concurrency=point.concurrency,
        rate=None,
        requests=method.prompts_by_concurrency[point.concurrency],
        isl=method.isl,
        osl=method.osl,
        acceptance=card.acceptance_length,
        seen=Seen(point.ttft_ms / MS, point.tpot_ms / MS, point.tokens_per_s_per_gpu),
    )
