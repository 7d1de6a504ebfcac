"""What step times rest on besides geometry: fitted efficiencies, links and fixed latencies. Data in `timing/`.

`efficiencies.yaml` is written by `scripts/fit_timing.py`; `machines.yaml` and `latencies.yaml` are kept by hand.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from perilune.facts.load import load

Confidence = Literal["high", "medium", "low"]


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of its peaks a platform reaches, and what a layer costs beside bytes and operations."""

    memory: float  # share of the HBM bandwidth that weights, KV and state are read with
    compute: float  # share of the dense BF16 peak that products with 16-bit activations reach
    compute_narrow: float  # share of the dense FP8 peak that products with narrower activations reach
    layer_us: float  # microseconds per layer and step: kernels too small to fill the device, inside a CUDA graph
    quantize_us: float  # microseconds per layer more where the projections take quantized activations


class Fit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One platform's efficiencies, and what they were fitted to."""

    efficiency: Efficiency
    points: int  # published points
    source: str
    engine: str  # SGLang versions of the measurements


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which fit a platform uses: its own, or its nearest relative's with a wider band."""

    of: str  # platform whose fit it is
    below: float  # factor from a predicted time to the least that is likely
    above: float
    why: str


class Efficiencies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every fit, and the reading of every platform."""

    date: str
    fits: dict[str, Fit]
    platforms: dict[str, Reading]


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number with where it comes from."""

    value: float
    source: str
    confidence: Confidence


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bandwidths around one GPU of a platform, one way, in bytes per second."""

    nic: Value  # between nodes
    host: Value  # to host memory
    storage: Value  # from the third cache level
    link: Value | None = None  # scale-up link, where the accelerator's entry has none


class Latencies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs that no published point tells apart. Microseconds, but for shares and counts."""

    fused_all_reduce_us: Value  # a one-shot or multicast all-reduce of a few hundred kilobytes
    symmetric_us: Value  # a collective library's collective on symmetric memory
    node_hop_us: Value  # one hop of a ring inside a node
    domain_hop_us: Value  # one hop of a ring across the nodes of a scale-up domain
    network_hop_us: Value  # one hop between nodes over RDMA
    link_share: Value  # share of a link's peak that large messages reach
    transfer_start_us: Value  # setting up one request's transfer
    eager_layer_us: Value  # launching one layer's kernels without a CUDA graph
    layer_launches: Value  # kernels of one layer
    launch_queue: Value  # kernels that may wait for the device
    request_us: Value  # a request's way to the scheduler and its first token's way back
    tokenize_us: Value  # a prompt token in the tokenizer
    scheduler_us: Value  # preparing a step on the CPU, hidden by the overlap scheduler
    encoder_layer_us: Value  # one vision layer without a graph


@cache
def efficiencies() -> Efficiencies:
    """The shipped efficiencies."""
    return load("timing/efficiencies.yaml", Efficiencies)


@cache
def machines() -> dict[str, Machine]:
    """Bandwidths of every platform by id."""
    return load("timing/machines.yaml", dict[str, Machine])


@cache
def latencies() -> Latencies:
    """The fixed latencies."""
    return load("timing/latencies.yaml", Latencies)
