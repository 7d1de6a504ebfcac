"""From a model's config to its tensors, its state and KV sizes, and the weight bytes of one GPU.

`geometry_of(config)` builds a `Geometry`; `resident_weights(geometry, shape, stage)` says what a GPU holds.
"""

from __future__ import annotations

from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.families import SUPPORTED, geometry_of
from perilune.plan.model.geometry.resident import WeightGroup, replicated_query, resident_weights, weight_bytes
from perilune.plan.model.geometry.shape import Indivisible, ParallelShape, stage_layers

__all__ = [
    "SUPPORTED",
    "Geometry",
    "Indivisible",
    "ParallelShape",
    "WeightGroup",
    "geometry_of",
    "replicated_query",
    "resident_weights",
    "stage_layers",
    "weight_bytes",
]
