"""Which efficiencies a platform uses, and how far to trust them."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.errors import UnusableInput
from perilune.facts.timing import Efficiency, efficiencies
from perilune.rehearse.costs import Basis


@dataclass(frozen=True, slots=True)
class Efficient:
    """Efficiencies with their basis. `band` holds factors below and above a predicted time."""

    efficiency: Efficiency
    basis: Basis
    band: tuple[float, float]
    said: str


def efficient(platform: str) -> Efficient:
    """The shipped efficiencies of a platform; raises UnusableInput for one that nobody reads a fit for."""
    known = efficiencies()
    reading = known.platforms.get(platform)
    if reading is None:
        raise UnusableInput(f"No efficiencies are known for {platform}.", where="timing/efficiencies.yaml")
    fit = known.fits[reading.of]
    own = reading.of == platform
    said = (
        f"fitted to {fit.points} published points (SGLang {fit.engine})"
        if own
        else f"borrowed from {reading.of}: {reading.why}"
    )
    return Efficient(fit.efficiency, "fitted" if own else "borrowed", (reading.below, reading.above), said)
