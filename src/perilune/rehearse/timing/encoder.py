"""Seconds of the vision tower on one image."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from perilune.errors import UnusableInput
from perilune.facts.timing import Efficiency, latencies
from perilune.plan.model import geometry_of
from perilune.plan.model.config import ModelConfig
from perilune.plan.model.fields import Fields
from perilune.plan.resolve.state import Resolved
from perilune.rehearse.ticks import ticks
from perilune.rehearse.timing.collectives import US
from perilune.rehearse.timing.roofline import Speeds

PROJECTOR = ("projector", "merger", "downsample")
DEPTHS = ("vt_num_hidden_layers", "depth", "num_hidden_layers")
WIDTHS = ("qkv_hidden_size", "vt_hidden_size", "hidden_size")


@dataclass(frozen=True, slots=True)
class _Tower:
    layers: int
    patches: int  # patches that become one image token
    patch_macs: int  # multiply-adds per patch
    token_macs: int  # multiply-adds per image token: the projector
    width: int  # of the attention, heads together


def encoder_of(resolved: Resolved, efficiency: Efficiency) -> Callable[[int, bool], int]:
    """Ticks of one image of so many tokens, and whether a captured graph is replayed.

    The tower runs whole on one GPU in BF16: every patch through the weights, every patch against every other. Without
    a graph the launches of small kernels may outlast them.
    """
    speeds = Speeds.of(resolved.platform.accelerator, efficiency)
    model = resolved.model
    tower = _tower(model) if model.vision else None
    inside, eager = efficiency.layer_us * US, latencies().encoder_layer_us.value * US

    def encode(tokens: int, graph: bool) -> int:
        if tower is None:
            raise UnusableInput(f"{model.path} has no vision tower, so it takes no images.", where="images")
        patches = tokens * tower.patches
        macs = patches * (tower.patch_macs + tower.layers * 2 * patches * tower.width) + tokens * tower.token_macs
        kernels = 2 * macs / speeds.flops["wide"] + tower.layers * inside
        return ticks(kernels if graph else max(kernels, tower.layers * eager))

    return encode


def _tower(model: ModelConfig) -> _Tower:
    f = Fields(model.vision or {}, f"{model.path} config vision_config")
    merge = math.prod(f.integers("merge_kernel_size", low=1, high=64)) if f.has("merge_kernel_size") else 4
    parts = [t for t in geometry_of(model).tensors if t.group == "vision" and t.cols > 1 and t.stored is not None]
    skipped = ("position table",)
    after = sum(t.rows * t.cols * t.count for t in parts if t.name.startswith(PROJECTOR))
    inside = sum(t.rows * t.cols * t.count for t in parts if not t.name.startswith((*PROJECTOR, *skipped)))
    return _Tower(
        layers=next(f.integer(name, high=10_000) for name in DEPTHS if f.has(name)),
        patches=merge,
        patch_macs=inside,
        token_macs=after,
        width=next(f.integer(name, high=1 << 24) for name in WIDTHS if f.has(name)),
    )
