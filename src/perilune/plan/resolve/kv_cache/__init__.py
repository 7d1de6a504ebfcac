"""The KV cache: element formats, prefix cache, host offload, page layout and the unified pool."""

from __future__ import annotations

from perilune.plan.resolve.kv_cache.formats import kv4_compatibility, mxfp8_compatibility, nvfp4_prefill_dtype
from perilune.plan.resolve.kv_cache.layout import page_major_layout
from perilune.plan.resolve.kv_cache.prefill_only import prefill_only_backend, prefill_only_flags
from perilune.plan.resolve.kv_cache.prefix import cache_compatibility, offload_compatibility
from perilune.plan.resolve.kv_cache.unified import unified_memory

__all__ = [
    "cache_compatibility",
    "kv4_compatibility",
    "mxfp8_compatibility",
    "nvfp4_prefill_dtype",
    "offload_compatibility",
    "page_major_layout",
    "prefill_only_backend",
    "prefill_only_flags",
    "unified_memory",
]
