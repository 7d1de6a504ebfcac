"""What an architecture decides."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def model_specific(r: Resolution) -> None:
    """Model specific."""


def model_capability(r: Resolution) -> None:
    """Model capability."""
