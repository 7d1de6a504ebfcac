"""What a model is: its config, its geometry, and the bytes it needs."""

from __future__ import annotations

from perilune.plan.model.config import ModelConfig, known_config
from perilune.plan.model.geometry import (
    Geometry,
    Indivisible,
    ParallelShape,
    WeightGroup,
    geometry_of,
    replicated_query,
    resident_weights,
    stage_layers,
    weight_bytes,
)
from perilune.plan.model.reading import load_config_file, parse_config

__all__ = [
    "Geometry",
    "Indivisible",
    "ModelConfig",
    "ParallelShape",
    "WeightGroup",
    "geometry_of",
    "known_config",
    "load_config_file",
    "parse_config",
    "replicated_query",
    "resident_weights",
    "stage_layers",
    "weight_bytes",
]
