"""Mixture-of-experts: kernels, all-to-all and their token budgets."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def mega_moe(r: Resolution) -> None:
    """Mega moe."""


def kernel_config(r: Resolution) -> None:
    """Kernel config."""


def a2a(r: Resolution) -> None:
    """A2a."""


def experimental_marlin(r: Resolution) -> None:
    """Experimental marlin."""


def boundary_reduction(r: Resolution) -> None:
    """Boundary reduction."""


def flashinfer_a2a_budget(r: Resolution) -> None:
    """Flashinfer a2a budget."""


def mega_moe_budget(r: Resolution) -> None:
    """Mega moe budget."""


def deepep_v2_draft(r: Resolution) -> None:
    """Deepep v2 draft."""


def deepep_v2_budget(r: Resolution) -> None:
    """Deepep v2 budget."""
