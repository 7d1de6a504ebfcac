"""Where the weights come from and how they are read."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def model_source(r: Resolution) -> None:
    """Model source."""


def expert_pack(r: Resolution) -> None:
    """Expert pack."""


def load_format(r: Resolution) -> None:
    """Load format."""
