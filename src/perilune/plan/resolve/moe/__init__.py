"""Mixture of experts: the kernels that run them, the all-to-all that feeds them, and its token budgets."""

from __future__ import annotations

from perilune.plan.resolve.moe.all_to_all import a2a
from perilune.plan.resolve.moe.budgets import (
    deepep_v2_budget,
    deepep_v2_draft,
    flashinfer_a2a_budget,
    mega_moe_budget,
)
from perilune.plan.resolve.moe.mega import mega_moe
from perilune.plan.resolve.moe.reduction import boundary_reduction
from perilune.plan.resolve.moe.runner import experimental_marlin, kernel_config

__all__ = [
    "a2a",
    "boundary_reduction",
    "deepep_v2_budget",
    "deepep_v2_draft",
    "experimental_marlin",
    "flashinfer_a2a_budget",
    "kernel_config",
    "mega_moe",
    "mega_moe_budget",
]
