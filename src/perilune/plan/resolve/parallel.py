"""How the ranks are laid out: tensor, data, context, pipeline and expert parallelism."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def deprecated_dp_attention(r: Resolution) -> None:
    """Deprecated dp attention."""


def prefill_cp_platform(r: Resolution) -> None:
    """Prefill cp platform."""


def decode_context_parallelism(r: Resolution) -> None:
    """Decode context parallelism."""


def dwdp(r: Resolution) -> None:
    """Dwdp."""


def data_parallelism(r: Resolution) -> None:
    """Data parallelism."""


def context_parallelism(r: Resolution) -> None:
    """Context parallelism."""


def kv_cache_sharding(r: Resolution) -> None:
    """Kv cache sharding."""


def shared_experts_tp(r: Resolution) -> None:
    """Shared experts tp."""


def eplb_and_dispatch(r: Resolution) -> None:
    """Eplb and dispatch."""


def expert_distribution_metrics(r: Resolution) -> None:
    """Expert distribution metrics."""


def elastic_ep(r: Resolution) -> None:
    """Elastic ep."""


def pipeline_overlap(r: Resolution) -> None:
    """Pipeline overlap."""


def layernorm_sp(r: Resolution) -> None:
    """Layernorm sp."""
