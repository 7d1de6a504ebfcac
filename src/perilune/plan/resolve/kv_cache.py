"""KV cache dtypes, pages and compatibility."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def offload_compatibility(r: Resolution) -> None:
    """Not decided yet."""


def prefill_only_flags(r: Resolution) -> None:
    """Not decided yet."""


def nvfp4_prefill_dtype(r: Resolution) -> None:
    """Not decided yet."""


def kv4_compatibility(r: Resolution) -> None:
    """Not decided yet."""


def mxfp8_compatibility(r: Resolution) -> None:
    """Not decided yet."""


def prefill_only_backend(r: Resolution) -> None:
    """Not decided yet."""


def cache_compatibility(r: Resolution) -> None:
    """Not decided yet."""


def page_major_layout(r: Resolution) -> None:
    """Not decided yet."""


def unified_memory(r: Resolution) -> None:
    """Not decided yet."""
