"""How much memory is free before and after the weights: measured on a boot, or predicted without one.

A prediction is the device's memory, less what the platform takes before loading (one documented figure per
platform), less the weights computed from the geometry, less one fitted figure for what loading leaves behind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import msgspec

from perilune.errors import UnusableInput
from perilune.facts.hardware import Platform
from perilune.facts.load import load
from perilune.plan.memory.figures import Basis
from perilune.plan.memory.pools import GIB
from perilune.plan.memory.weights import StageWeights

MIB = 1 << 20
MOST_GIB = 1 << 20  # a device with more memory than this is not one


class Overhead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory of one GPU that contexts and communicators take before the weights are loaded."""

    platform: str
    gib: float
    low_gib: float  # the true figure is taken to lie from low to high
    high_gib: float
    how: str
    source: str
    confidence: str  # high | medium | low


class Residue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory that loading leaves occupied besides the weights, per platform family. A fit."""

    families: tuple[str, ...]
    quantization: str = ""  # only for the engine's methods that begin so
    gib: float
    low_gib: float
    high_gib: float
    how: str
    source: str
    confidence: str


class _RuntimeMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    overheads: tuple[Overhead, ...]
    residues: tuple[Residue, ...]


@cache
def _runtime_memory() -> _RuntimeMemory:
    return load("runtime_memory.yaml", _RuntimeMemory)


@cache
def overhead(platform: str) -> Overhead:
    """The figure of a platform; raises KeyError for one that has none."""
    return {found.platform: found for found in _runtime_memory().overheads}[platform]


@cache
def residue(family: str, quantization: str | None) -> Residue:
    """The fitted figure of a platform family and of a checkpoint's method; raises KeyError for one that has none."""
    fitting = [
        found
        for found in _runtime_memory().residues
        if family in found.families and (quantization or "").startswith(found.quantization)
    ]
    if not fitting:
        raise KeyError(family)
    return max(fitting, key=lambda found: len(found.quantization))


@dataclass(frozen=True, slots=True)
class Measured:
    """Two figures of a boot log, in GiB, each the minimum over ranks.

    `free_before_load_gib` is `Load weight begin. avail mem`; `free_after_weights_gib` is the same word of
    `Load weight end` (the draft's, when there is one). Raises UnusableInput for figures no boot can show.
    """

    free_before_load_gib: float
    free_after_weights_gib: float

    def __post_init__(self) -> None:
        for flag, value in (
            ("--free-before-load-gib", self.free_before_load_gib),
            ("--free-after-weights-gib", self.free_after_weights_gib),
        ):
            if not math.isfinite(value) or not 0 <= value <= MOST_GIB:
                raise UnusableInput(f"{value} is not a memory size in GiB.", where=flag)
        if self.free_before_load_gib == 0:
            raise UnusableInput("0 GiB free before loading cannot be.", where="--free-before-load-gib")
        if self.free_after_weights_gib > self.free_before_load_gib:
            raise UnusableInput(
                f"{self.free_after_weights_gib} GiB after loading is more than the "
                f"{self.free_before_load_gib} GiB before it.",
                where="--free-after-weights-gib",
                fix="Give the `Load weight begin` and `Load weight end` figures of one rank.",
            )


class FreeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What sizing starts from, per GPU. `stage_free_gib` is each PP stage's own; sizing uses the least."""

    total_bytes: int
    before_gib: float  # P
    free_gib: float  # A
    stage_free_gib: tuple[float, ...]
    basis: Basis
    left: Residue | None = None  # what loading is predicted to leave behind
    low: tuple[float, float] | None = None  # (P, A) at the unlucky end of a prediction
    high: tuple[float, float] | None = None


def measured_memory(figures: Measured, platform: Platform, weights: tuple[StageWeights, ...]) -> FreeMemory:
    """Take both figures from a boot; other stages differ from the fullest one by their computed weights."""
    most = max(stage.bytes for stage in weights)
    free = figures.free_after_weights_gib
    return FreeMemory(
        total_bytes=platform.memory_mib * MIB,
        before_gib=figures.free_before_load_gib,
        free_gib=free,
        stage_free_gib=tuple(free + (most - stage.bytes) / GIB for stage in weights),
        basis=Basis.EXACT,
    )


def predicted_memory(platform: Platform, weights: tuple[StageWeights, ...], quantization: str | None) -> FreeMemory:
    """Predict both figures for a platform, the weights of each stage, and the engine's quantization method."""
    taken, left = overhead(platform.id), residue(platform.family, quantization)
    device = platform.memory_mib * MIB / GIB
    most = max(stage.bytes for stage in weights) / GIB
    before = device - taken.gib
    return FreeMemory(
        total_bytes=platform.memory_mib * MIB,
        before_gib=before,
        free_gib=before - most - left.gib,
        stage_free_gib=tuple(before - stage.bytes / GIB - left.gib for stage in weights),
        basis=Basis.PREDICTED,
        left=left,
        low=(device - taken.high_gib, device - taken.high_gib - most - left.high_gib),
        high=(device - taken.low_gib, device - taken.low_gib - most - left.low_gib),
    )
