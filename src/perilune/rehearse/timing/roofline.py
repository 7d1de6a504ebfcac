"""Matrix products on one GPU: each takes as long as its weights take to read or its operations to run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from perilune.errors import UnusableInput
from perilune.facts.hardware import Accelerator
from perilune.facts.timing import Efficiency

Rate = Literal["wide", "narrow"]  # 16-bit activations, or 8 bits and fewer


@dataclass(frozen=True, slots=True)
class Speeds:
    """What one GPU reaches: bytes per second from HBM, operations per second by format."""

    bytes_per_s: float
    flops: dict[Rate, float]

    @classmethod
    def of(cls, accelerator: Accelerator, efficiency: Efficiency) -> Speeds:
        """Peaks times efficiencies. A device without 8-bit units runs narrow products at its 16-bit peak."""
        wide = accelerator.bf16_flops
        if wide is None:
            raise UnusableInput(f"The BF16 peak of {accelerator.name} is not known.", where=accelerator.id)
        narrow = wide * efficiency.compute
        if accelerator.fp8_flops is not None:
            narrow = accelerator.fp8_flops * efficiency.compute_narrow
        return cls(
            accelerator.hbm_bytes_per_s * efficiency.memory, {"wide": wide * efficiency.compute, "narrow": narrow}
        )


@dataclass(frozen=True, slots=True)
class Product:
    """Weights of `size` bytes, of which every row of activations costs `macs` multiply-adds."""

    size: int
    macs: int
    rate: Rate


class Roofline:
    """Seconds of several products run one after the other, for a number of activation rows.

    The sum of `max(bytes time, rows x operations time)` is convex and piecewise linear in the rows: the products
    are sorted by the rows at which operations overtake bytes, and a call is one search in that list.
    """

    __slots__ = ("_ahead", "_behind", "_turns")

    def __init__(self, products: Iterable[Product], speeds: Speeds) -> None:
        found = []
        for product in products:
            reading = product.size / speeds.bytes_per_s
            running = 2 * product.macs / speeds.flops[product.rate]
            found.append((reading / running if running else float("inf"), reading, running))
        found.sort()
        self._turns = [turn for turn, _, _ in found]
        self._behind = [0.0, *accumulate(running for _, _, running in found)]
        whole = sum(reading for _, reading, _ in found)
        self._ahead = [whole, *(whole - done for done in accumulate(reading for _, reading, _ in found))]

    def seconds(self, rows: float) -> float:
        """Seconds for `rows` rows; 0 for none."""
        if rows <= 0:
            return 0.0
        at = bisect_right(self._turns, rows)
        return self._ahead[at] + rows * self._behind[at]
