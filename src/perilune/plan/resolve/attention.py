"""Attention, sampling and linear-attention backends, and the page size they impose."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def sampling_backend(r: Resolution) -> None:
    """Sampling backend."""


def deterministic_inference(r: Resolution) -> None:
    """Deterministic inference."""


def backend_compatibility(r: Resolution) -> None:
    """Backend compatibility."""


def linear_attention_backend(r: Resolution) -> None:
    """Linear attention backend."""


def page_size_default(r: Resolution) -> None:
    """Page size default."""


def multi_item_scoring(r: Resolution) -> None:
    """Multi item scoring."""
