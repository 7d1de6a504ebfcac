"""Which catalog conditions hold for a choice, and the refusals that follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perilune.errors import Refused
from perilune.facts.options import Refusal, When
from perilune.facts.recipes import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What conditions ask about: platform, role, the options chosen so far, and the shape of the cell."""

    hardware: str
    family: str
    role: Role
    quant: str = "mxfp4"
    spec: str = "none"
    hicache: str = "off"
    pipelined: bool = False
    collapsible: bool = False
    dcp: bool = False
    attention_dp: bool = False


def holds(when: When, now: Situation) -> bool:
    """Whether every field that the condition names holds."""
    wanted = (
        (when.hardware, now.hardware),
        (when.family, now.family),
        (when.roles, now.role),
        (when.spec, now.spec),
        (when.hicache, now.hicache),
    )
    unwanted = (
        (when.not_hardware, now.hardware),
        (when.not_family, now.family),
        (when.not_spec, now.spec),
    )
    facts = (
        (when.pipelined, now.pipelined),
        (when.collapsible, now.collapsible),
        (when.dcp, now.dcp),
        (when.attention_dp, now.attention_dp),
    )
    return (
        all(allowed is None or actual in allowed for allowed, actual in wanted)
        and all(excluded is None or actual not in excluded for excluded, actual in unwanted)
        and all(expected is None or expected == actual for expected, actual in facts)
    )


def first_refusal(refusals: Iterable[Refusal], now: Situation) -> Refusal | None:
    """The first refusal whose condition holds."""
    return next((refusal for refusal in refusals if holds(refusal.when, now)), None)


def refuse(refusal: Refusal, what: str, now: Situation) -> Refused:
    """The error for a refusal of `what`, such as `--spec dspark`."""
    place = f"{now.hardware} {now.role}"
    return Refused(f"{refusal.reason}", where=f"{what} on {place}", fix=f"Nearest: {refusal.instead}.")
