"""The default chunk size, graph sizes and static memory fraction."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def gpu_memory_settings(r: Resolution) -> None:
    """Gpu memory settings."""
