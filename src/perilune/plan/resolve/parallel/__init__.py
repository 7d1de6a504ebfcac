"""How the ranks are laid out: tensor, data, context, pipeline and expert parallelism."""

from __future__ import annotations

from perilune.plan.resolve.parallel.context import context_parallelism, decode_context_parallelism
from perilune.plan.resolve.parallel.elastic import elastic_ep
from perilune.plan.resolve.parallel.experts import (
    eplb_and_dispatch,
    expert_distribution_metrics,
    shared_experts_tp,
)
from perilune.plan.resolve.parallel.kv_sharding import kv_cache_sharding
from perilune.plan.resolve.parallel.layout import (
    data_parallelism,
    deprecated_dp_attention,
    dwdp,
    layernorm_sp,
    pipeline_overlap,
)

__all__ = [
    "context_parallelism",
    "data_parallelism",
    "decode_context_parallelism",
    "deprecated_dp_attention",
    "dwdp",
    "elastic_ep",
    "eplb_and_dispatch",
    "expert_distribution_metrics",
    "kv_cache_sharding",
    "layernorm_sp",
    "pipeline_overlap",
    "shared_experts_tp",
]
