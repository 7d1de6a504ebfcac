"""Where the weights come from and how they are read."""

from __future__ import annotations

from perilune.plan.resolve.loading.expert_pack import expert_pack
from perilune.plan.resolve.loading.source import load_format, model_source

__all__ = ["expert_pack", "load_format", "model_source"]
