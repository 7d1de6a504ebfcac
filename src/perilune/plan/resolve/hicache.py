"""Hierarchical cache."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def ratio_default(r: Resolution) -> None:
    """Not decided yet."""


def hierarchical_cache(r: Resolution) -> None:
    """Not decided yet."""
