"""How many tokens a speculative step yields, and who says so: the user, the plan, or a published run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, TypeAlias

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.measurements import Card, measurements
from perilune.plan.planned import PlannedPool

VARIABLE: Final = "SGLANG_SIMULATE_ACC_LEN"
METHOD: Final = "SGLANG_SIMULATE_ACC_METHOD"
MIX: Final = "--acceptance-mix"

MOST_PARTS: Final = 100
MOST_WEIGHT: Final = 10**6

Mix: TypeAlias = Sequence[tuple[float, int]]
"""Tokens a step, and how many requests of all that are counted here get them."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Tokens that a speculative step yields on average, and who says so.

    With a `mix` requests differ: each draws its own length, as often as the second number says; `length` is their mean.
    """

    length: float
    source: str
    assumed: bool
    mix: tuple[tuple[float, int], ...] = ()

    @property
    def parts(self) -> Mix:
        """The mix, or one length for all."""
        return self.mix or ((self.length, 1),)


def parse_mix(text: str) -> Mix:
    """A mix as it is written: `2.5:30,4.5:70` is 2.5 tokens a step for 30 requests of 100 and 4.5 for the others.

    Raises UnusableInput for anything else.
    """
    found = []
    for part in text.split(",", MOST_PARTS):
        length, _, weight = part.partition(":")
        try:
            one = float(length), int(weight)
        except ValueError:
            one = math.nan, 0
        if not math.isfinite(one[0]) or not 0 < one[1] <= MOST_WEIGHT:
            raise UnusableInput(
                f"{part[:60]!r} is no part of a mix.",
                where=MIX,
                fix="Write tokens a step and how many requests get them, such as 2.5:30,4.5:70.",
            )
        found.append(one)
    return tuple(found)


def acceptance_for(item: PlannedPool, given: float | None = None, mix: Mix = ()) -> Acceptance | None:
    """What a pool's speculation yields; None where it does not speculate.

    `given` or a `mix` goes first, then the plan's own SGLANG_SIMULATE_ACC_LEN, then the nearest published run, as an
    assumption: nobody has published an acceptance rate of Kimi-K3 that was measured. Raises UnusableInput for a length
    that no step of this server can yield.
    """
    values = item.resolved.values
    if values["speculative_algorithm"] is None:
        return None
    most = values["speculative_num_draft_tokens"]
    pinned = _pinned(item.resolved.env, most)
    if mix:
        mean = sum(length * weight for length, weight in mix) / sum(weight for _, weight in mix)
        found, where = Acceptance(mean, "as given", assumed=False, mix=tuple(mix)), MIX
    elif given is not None:
        found, where = Acceptance(given, "as given", assumed=False), "--acceptance-length"
    elif pinned is not None:
        found, where = Acceptance(pinned, f"the plan's {VARIABLE}", assumed=False), VARIABLE
    else:
        card, length = _nearest(item)
        found = Acceptance(length, f"pinned so in the published runs of {card.cell}", assumed=True)
        where = card.cell
    for length, _ in found.parts:
        if not 1 <= length <= most:
            raise UnusableInput(f"A step of this server yields 1 to {most} tokens, not {length:g}.", where=where)
    return found


def _pinned(env: Mapping[str, str], most: int) -> float | None:
    """What the engine puts in place of what is accepted, on average; it keeps within 1 and `most`.

    Source: SGLang 0.5.23 `speculative/spec_utils.py` (`sample_simulated_acc_len`): `match-expected` draws the whole
    numbers around the length, `multinomial` rounds a normal variable of standard deviation 1.
    """
    text = env.get(VARIABLE)
    if text is None:
        return None
    try:
        length = float(text)
    except ValueError:
        length = math.nan
    if not math.isfinite(length):
        raise UnusableInput(f"{text[:40]!r} is no length.", where=VARIABLE, fix="Give a number of tokens, such as 4.5.")
    if length <= 0:
        return None
    method = env.get(METHOD, "match-expected")
    if method == "match-expected":
        return min(max(length, 1.0), most)
    if method == "multinomial":
        drawn = NormalDist(length)
        return 1.0 + sum(1.0 - drawn.cdf(tokens - 0.5) for tokens in range(2, most + 1))
    raise UnusableInput(f"{method[:40]!r} is no method.", where=METHOD, fix="Known: match-expected multinomial.")


def _nearest(item: PlannedPool) -> tuple[Card, float]:
    """The published run with speculation that is most like this pool: of its cell, platform, kind of accelerator."""
    pool = item.pool

    def unlike(one: tuple[Card, float]) -> tuple[bool, bool, bool, str]:
        cell = one[0].cell
        ran_on = platform(cell.partition("/")[0])
        return cell != pool.recipe, ran_on.id != pool.platform, ran_on.kind != platform(pool.platform).kind, cell

    cards = [(card, card.acceptance_length) for card in measurements().cards if card.acceptance_length is not None]
    return min(cards, key=unlike)
