"""Hierarchical KV cache: host pool size, layout and transfer kernels, storage and DCP."""

from __future__ import annotations

from typing import Any

from perilune.plan.resolve.state import Rejected, Resolution

LINKER = "--enable-unified-cache-external-linker"
LINKER_CONFIG = "--unified-cache-external-linker-config"
LINKER_FIELDS = frozenset({"linker", "linker_module_path", "linker_extra_config"})
RATIO = 2.0
BUFFER_ONLY_RATIO = 1.2  # covers the write backlog and parked prefetches only
PACKED_STORAGE = frozenset({"mooncake", "npu_memcache"})  # need a page-first host layout


def ratio_default(r: Resolution) -> None:
    """Fill in the host-to-device ratio; a PD decode server settles it later, with its host pool."""
    fraction = r["hicache_host_memory_fraction"]
    if fraction is not None and not 0 < fraction <= 1:
        raise r.reject("--hicache-host-memory-fraction must be in (0, 1].")
    ratio = r["hicache_ratio"]
    if ratio is not None or r["hicache_size"] > 0:
        r.set("hicache_host_memory_fraction", None, "The host pool's size was given, so it is not derived.")
    if ratio is None and r["disaggregation_mode"] != "decode":
        buffers_only = r["hicache_host_memory_mode"] == "buffer_only"
        r.set(
            "hicache_ratio",
            BUFFER_ONLY_RATIO if buffers_only else RATIO,
            "The default size of the host pool relative to the device pool.",
        )


def hierarchical_cache(r: Resolution) -> None:
    """Make layout, transfer kernels, storage and DCP agree, for HiCache or a PD decode host pool."""
    _check_linker(r)
    if r["enable_unified_cache_external_linker"] or not _builds_host_pool(r):
        return
    _check_memory_mode(r)
    receives_on_host = r["disaggregation_decode_host_receive_threshold"] < 1
    if receives_on_host:
        r.set("hicache_mem_layout", "layer_first", "KV transfer writes the host pool layer by layer.")
    _fit_layout_to_kernels(r)
    _fit_layout_to_storage(r)
    _fit_layout_to_unified_memory(r)
    layout = r["hicache_mem_layout"]
    if receives_on_host and layout != "layer_first":
        raise r.reject(
            f"The resolved HiCache storage layout {layout!r} cannot share the layer_first decode host pool "
            "used by KV transfer"
        )
    if r["dcp_size"] > 1 and r["enable_hierarchical_cache"]:
        _check_dcp(r)


def _builds_host_pool(r: Resolution) -> bool:
    retracts_to_host = r["disaggregation_mode"] == "decode" and r["disaggregation_decode_retraction_backup"] in (
        None,
        "host_pool",
    )
    return bool(r["enable_hierarchical_cache"] or r["disaggregation_decode_enable_offload_kvcache"] or retracts_to_host)


def _check_linker(r: Resolution) -> None:
    """Check the external cache linker, which replaces the host tier."""
    enabled = r["enable_unified_cache_external_linker"]
    backend, config = r["unified_cache_external_linker_backend"], r["unified_cache_external_linker_config"]
    if config is not None and not isinstance(config, dict):
        raise r.reject(f"{LINKER_CONFIG} must be a JSON object.")
    if backend == "dynamic" and (enabled or config is not None):
        _check_linker_config(r, config)
    if r["enable_linker_mla_dedup"] and not (enabled and backend == "mooncake"):
        raise r.reject("--enable-linker-mla-dedup requires the Mooncake linker.")
    if not enabled:
        return
    if r["disable_radix_cache"] or r["radix_cache_backend"] is not None:
        raise r.reject(f"{LINKER} requires the default UnifiedRadixCache with radix caching enabled.")
    if r["enable_hierarchical_cache"]:
        raise r.reject(f"{LINKER} and --enable-hierarchical-cache are mutually exclusive.")
    if r["hicache_storage_backend"] is not None:
        raise r.reject(f"{LINKER} does not use --hicache-storage-backend.")


def _check_linker_config(r: Resolution, config: dict[str, Any] | None) -> None:
    if config is None:
        raise r.reject(f"{LINKER_CONFIG} must be a JSON object.")
    unknown = sorted(config.keys() - LINKER_FIELDS)
    if unknown:
        raise r.reject(f"{LINKER_CONFIG}: unknown fields: {unknown}")
    for name in ("linker", "linker_module_path"):
        entry = config.get(name)
        if not isinstance(entry, str) or not entry.strip():
            raise r.reject(f"{LINKER_CONFIG}: {name} must be a non-empty string.")
    if not isinstance(config.get("linker_extra_config", {}), dict):
        raise r.reject(f"{LINKER_CONFIG}: linker_extra_config must be a JSON object.")


def _check_memory_mode(r: Resolution) -> None:
    """`buffer_only` keeps nothing on the host, so the data must live in storage."""
    if r["hicache_host_memory_mode"] == "cache":
        return
    if r["hicache_storage_backend"] is None:
        raise r.reject(
            "--hicache-host-memory-mode buffer_only requires a storage backend (--hicache-storage-backend): "
            "host memory is only a staging buffer and all cached data lives in storage."
        )
    if r["hicache_write_policy"] == "write_back":
        r.set("hicache_write_policy", "write_through", "buffer_only has no host tier to write back to.")
    if r["disaggregation_mode"] == "decode":
        raise r.reject(
            "--hicache-host-memory-mode buffer_only is not supported on decode instances: the decode-side "
            "prefetch and offload paths bypass the buffer-mode pipeline, fetching without its prefix context "
            "and never consuming its staged holds. Prefill instances share the standard scheduler path and "
            "are supported."
        )


def _fit_layout_to_kernels(r: Resolution) -> None:
    layout, kernels = r["hicache_mem_layout"], r["hicache_io_backend"]
    if layout == "page_first_direct" and kernels == "kernel":
        kernels = "direct"
        r.set("hicache_io_backend", kernels, "The page_first_direct layout is copied directly.")
        r.warn("HiCache copies the page_first_direct layout with the direct io backend, not with kernels.")
    if layout == "page_first" and kernels == "direct":
        r.set("hicache_mem_layout", "page_first_direct", "Direct copies need the page_first_direct layout.")
        r.warn("HiCache uses the page_first_direct layout, which the direct io backend needs.")


def _fit_layout_to_storage(r: Resolution) -> None:
    storage = r["hicache_storage_backend"]
    if storage not in PACKED_STORAGE or r["hicache_mem_layout"] != "layer_first":
        return
    if storage == "mooncake" and r["dcp_size"] > 1:
        return
    page_first = {"direct": "page_first_direct", "kernel": "page_first"}
    layout = page_first.get(r["hicache_io_backend"], "layer_first")
    r.set("hicache_mem_layout", layout, f"{storage} stores whole pages, not layers.")
    r.warn(f"HiCache uses the {layout} layout: {storage} storage does not support layer_first.")


def _fit_layout_to_unified_memory(r: Resolution) -> None:
    if not r["enable_unified_memory"] or r["hicache_mem_layout"] != "page_first_direct":
        return
    reason = "Direct copies cannot read the unified pool's strided rows."
    r.set("hicache_mem_layout", "page_first", reason)
    r.set("hicache_io_backend", "kernel", reason)
    r.warn("HiCache copies with kernels and the page_first layout, because of unified memory.")


def _check_dcp(r: Resolution) -> None:
    """Host pools of DCP servers translate indices for MLA targets, and only for a DSPARK draft."""

    def refusal(text: str) -> Rejected:
        return r.reject(text, error="NotImplementedError")

    if r["hicache_storage_backend"] is not None and r["hicache_host_memory_mode"] == "buffer_only":
        raise refusal("HiCache L3 with DCP does not support buffer_only host memory.")
    if r["speculative_algorithm"] not in (None, "DSPARK"):
        raise refusal(
            "HiCache with --dcp-size > 1 only supports DSPARK speculative decoding; other draft-model host "
            "pools have no DCP index translation."
        )
    if r["enable_lmcache"]:
        raise refusal(
            "--enable-lmcache with --dcp-size > 1 is not supported: LMCache has no DCP-aware index translation."
        )
    if r["enable_hisparse"]:
        raise refusal(
            "--enable-hisparse with --dcp-size > 1 is not supported: the HiSparse host pool is constructed "
            "without DCP translation."
        )
    if not r.model.is_mla:
        raise refusal(
            "HiCache with --dcp-size > 1 is only supported for MLA models: the index translation lives in "
            "MLATokenToKVPoolHost, and the MHA host pool has none."
        )
