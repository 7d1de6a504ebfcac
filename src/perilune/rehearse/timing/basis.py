"""Which efficiencies a platform uses, and how far to trust them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from perilune.errors import UnusableInput
from perilune.facts.timing import Efficiency, efficiencies
from perilune.plan.display import counted
from perilune.rehearse.costs import Basis

BOUNDS: Final = {
    "memory": (0.2, 0.92),
    "compute": (0.05, 0.85),
    "compute_narrow": (0.05, 0.85),
    "layer_us": (2.0, 400.0),
    "quantize_us": (1.0, 100.0),
}
"""What is physically possible, by efficiency."""


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
        f"fitted to {counted(fit.points, 'published point')} (SGLang {fit.engine})"
        if own
        else f"borrowed from {reading.of}: {reading.why}"
    )
    return Efficient(fit.efficiency, "fitted" if own else "borrowed", (reading.below, reading.above), said)
