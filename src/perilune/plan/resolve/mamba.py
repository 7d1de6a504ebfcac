"""Linear-attention (KDA, GDN, Mamba2) state options."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def backend(r: Resolution) -> None:
    """Backend."""


def int8_checkpoint(r: Resolution) -> None:
    """Int8 checkpoint."""
