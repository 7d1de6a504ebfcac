"""Speculative decoding and diffusion models."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def aux_hidden_state_capture(r: Resolution) -> None:
    """Not decided yet."""


def speculative_decoding(r: Resolution) -> None:
    """Not decided yet."""


def diffusion_llm(r: Resolution) -> None:
    """Not decided yet."""
