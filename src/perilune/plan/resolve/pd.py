"""Prefill and decode disaggregation."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def disaggregation(r: Resolution) -> None:
    """Not decided yet."""


def encoder_disaggregation(r: Resolution) -> None:
    """Not decided yet."""
