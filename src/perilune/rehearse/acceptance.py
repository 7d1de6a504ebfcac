"""How many tokens a speculative step yields, and who says so: the user, the plan, or a published run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.measurements import Card, measurements
from perilune.plan.planned import PlannedPool

VARIABLE = "SGLANG_SIMULATE_ACC_LEN"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Tokens that a speculative step yields on average, and who says so."""

    length: float
    source: str
    assumed: bool


def acceptance_for(item: PlannedPool, given: float | None = None) -> Acceptance | None:
    """What a pool's speculation yields; None where it does not speculate.

    `given` goes first, then the plan's own SGLANG_SIMULATE_ACC_LEN, then the nearest published run, as an assumption:
    nobody has published an acceptance rate of Kimi-K3 that was measured. Raises UnusableInput for a length that no
    step of this server can yield.
    """
    values = item.resolved.values
    if values["speculative_algorithm"] is None:
        return None
    most = values["speculative_num_draft_tokens"]
    pinned = _pinned(item.resolved.env)
    if given is not None:
        found = Acceptance(given, "as given", assumed=False)
    elif pinned is not None:
        found = Acceptance(pinned, f"the plan's {VARIABLE}", assumed=False)
    else:
        card, length = _nearest(item)
        found = Acceptance(length, f"pinned so in the published runs of {card.cell}", assumed=True)
    if not 1 <= found.length <= most:
        raise UnusableInput(
            f"A step of this server yields 1 to {most} tokens, not {found.length:g}.",
            where="--acceptance-length" if given is not None else VARIABLE,
        )
    return found


def _pinned(env: Mapping[str, str]) -> float | None:
    text = env.get(VARIABLE)
    if text is None:
        return None
    try:
        length = float(text)
    except ValueError:
        length = math.nan
    if not math.isfinite(length):
        raise UnusableInput(f"{text!r} is no length.", where=VARIABLE, fix="Give a number of tokens, such as 4.5.")
    return length if length > 0 else None


def _nearest(item: PlannedPool) -> tuple[Card, float]:
    """The published run with speculation that is most like this pool: of its cell, platform, kind of accelerator."""
    pool = item.pool

    def unlike(one: tuple[Card, float]) -> tuple[bool, bool, bool, str]:
        cell = one[0].cell
        ran_on = platform(cell.partition("/")[0])
        return cell != pool.recipe, ran_on.id != pool.platform, ran_on.kind != platform(pool.platform).kind, cell

    cards = [(card, card.acceptance_length) for card in measurements().cards if card.acceptance_length is not None]
    return min(cards, key=unlike)
