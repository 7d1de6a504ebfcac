"""CUDA graph capture: backends and batch sizes."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def cuda_graph_config(r: Resolution) -> None:
    """Cuda graph config."""


def prefill_graph_for_trtllm_mla(r: Resolution) -> None:
    """Prefill graph for trtllm mla."""


def prefill_cp_default(r: Resolution) -> None:
    """Prefill cp default."""


def prefill_max_context(r: Resolution) -> None:
    """Prefill max context."""
