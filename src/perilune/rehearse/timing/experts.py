"""Routed experts in a step: which ones the tokens choose, and what one GPU reads and computes for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perilune.plan.model import Geometry, ParallelShape
from perilune.plan.model.geometry.experts import resident_slice
from perilune.plan.model.geometry.storage import FP8, FP8_BLOCK, MXFP4, NVFP4, W4A8, Storage
from perilune.plan.resolve.state import Resolved
from perilune.rehearse.timing.roofline import Rate, Speeds

NARROW = (FP8, FP8_BLOCK, NVFP4, MXFP4, W4A8)
WIDE_INPUTS = frozenset({"marlin", "triton_kernel"})  # runners that keep activations in 16 bits
ROW_BYTES = 5  # per latent element of a routed row: gathered in 1 B, written and summed in 2 B each


@dataclass(frozen=True, slots=True)
class Routed:
    """One stage's routed experts on one GPU."""

    layers: int
    experts: int  # of the model
    top_k: int
    local: int  # experts on this GPU
    ep: int
    size: int  # bytes of one expert's slice
    macs: int  # multiply-adds of one row through one expert's slice
    rate: Rate
    row_bytes: int  # activations that one routed row moves

    def distinct(self, tokens: float) -> float:
        """Experts of the fullest GPU that at least one of `tokens` tokens chooses.

        Each token chooses `top_k` of all at random: the mean is local (1 - (1 - k/E)^n). With EP the fullest rank
        holds about sqrt(2 mean ln EP) more.
        """
        mean = self.local * (1.0 - (1.0 - self.top_k / self.experts) ** tokens)
        return min(float(self.local), self._fullest(mean))

    def rows(self, tokens: float) -> float:
        """(token, expert) pairs that the fullest GPU runs."""
        return min(tokens * min(self.top_k, self.local), self._fullest(tokens * self.top_k / self.ep))

    def seconds(self, tokens: float, speeds: Speeds) -> float:
        """Seconds of all layers: the chosen experts' weights or their operations, and the rows moved."""
        rows = self.rows(tokens)
        reading = self.distinct(tokens) * self.size / speeds.bytes_per_s
        running = 2 * rows * self.macs / speeds.flops[self.rate]
        return self.layers * (max(reading, running) + rows * self.row_bytes / speeds.bytes_per_s)

    def _fullest(self, mean: float) -> float:
        return mean if self.ep == 1 else mean + math.sqrt(2.0 * mean * math.log(self.ep))


def routed_of(resolved: Resolved, geometry: Geometry, shape: ParallelShape, start: int, end: int) -> Routed | None:
    """The routed experts of the stage that holds layers [start, end); None where it has none."""
    experts = geometry.experts
    layers = sum(start <= n < end for n in experts.layers) if experts else 0
    if experts is None or not layers:
        return None
    piece = resident_slice(experts, shape)
    return Routed(
        layers=layers,
        experts=experts.count,
        top_k=top_k(geometry),
        local=piece.local,
        ep=shape.ep,
        size=(piece.weight_bytes + piece.bias_bytes) // piece.local,
        macs=experts.matrices * piece.hidden * piece.intermediate,
        rate=expert_rate(resolved, piece.storage),
        row_bytes=ROW_BYTES * piece.hidden + 2 * (experts.up_matrices + 2) * piece.intermediate,
    )


def top_k(geometry: Geometry) -> int:
    """Experts that a token chooses."""
    f = geometry.config.fields
    for key in ("num_experts_per_token", "num_experts_per_tok"):
        if f.has(key):
            return f.integer(key, high=1 << 16)
    raise f.bad("num_experts_per_tok", "is missing")


def expert_rate(resolved: Resolved, storage: Storage) -> Rate:
    """The format that the routed experts' products run in, by runner and platform.

    FlashInfer's MXFP4 kernels quantize activations to 8 bits on Blackwell and keep 16 bits on Hopper unless told
    otherwise; MegaMoE and DeepGEMM take FP8; Marlin and Triton keep 16 bits. Source: SGLang 0.5.23
    layers/quantization/mxfp4.py. 4-bit activations gain nothing over 8-bit ones where both were published: NVFP4
    beside MXFP4 on B300, A4W4 beside A8W4 on MI35x.
    """
    platform = resolved.platform
    if storage is MXFP4:
        if platform.kind == "cuda" and (platform.sm or 0) < 100:
            return "narrow" if resolved["flashinfer_mxfp4_moe_precision"] == "fp8" else "wide"
        return "wide" if resolved["moe_runner_backend"] in WIDE_INPUTS else "narrow"
    return dense_rate(storage)


def dense_rate(storage: Storage) -> Rate:
    """The format that products with weights stored so run in, experts aside."""
    return "narrow" if storage in NARROW else "wide"
