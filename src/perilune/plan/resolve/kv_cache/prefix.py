"""The prefix (radix) cache and what it excludes; weight offload beside per-layer embeddings."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp


def offload_compatibility(r: Resolution) -> None:
    """Per-layer embeddings that stay on the host exclude the generic layer offload."""
    if r["ple_offload_embedding"] and (r["cpu_offload_gb"] > 0 or r["offload_group_size"] > 0):
        raise r.reject(
            "--ple-offload-embedding cannot be combined with --cpu-offload-gb or --offload-group-size: "
            "generic layer offload would stage the pinned PLE embedding back to the device."
        )
    if r["ple_offload_backend"] == "file" and r["ple_offload_embedding"] is False:
        raise r.reject(
            "--ple-offload-backend file requires --ple-offload-embedding: the file-backed table is the offloaded table."
        )


def cache_compatibility(r: Resolution) -> None:
    """Check retraction backup, eviction policy, hierarchical cache, KV offload, SWA ratio and LMCache."""
    _host_pool_retraction(r)
    _tlru_policy(r)
    if r["enable_hierarchical_cache"] and r["disable_radix_cache"]:
        raise r.reject(
            "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and "
            "cannot be used at the same time. Please use only one of them."
        )
    _decode_offload(r)
    _sliding_window(r)
    if r["enable_lmcache"]:
        _lmcache(r)


def _host_pool_retraction(r: Resolution) -> None:
    if r["disaggregation_decode_retraction_backup"] != "host_pool":
        return
    flag = "--disaggregation-decode-retraction-backup=host_pool"
    if r["disaggregation_mode"] != "decode":
        raise r.reject(f"{flag} is only supported on a PD decode server.")
    if r["dcp_size"] > 1:
        raise r.reject(f"{flag} does not support --dcp-size > 1.")
    if r["enable_priority_scheduling"] and not r["disable_priority_preemption"]:
        raise r.reject(f"{flag} requires --disable-priority-preemption when priority scheduling is enabled.")


def _tlru_policy(r: Resolution) -> None:
    if r["radix_eviction_policy"] != "tlru":
        return
    config = r["radix_eviction_policy_config"] or {}
    if not isinstance(config, dict):
        raise r.reject(f"{type(config).__name__!r} object has no attribute 'get'", error="AttributeError")
    threshold, estimate = config.get("threshold", 0), config.get("next_prompt_estimate", 0)
    try:
        negative, useless = threshold < 0 or estimate < 0, threshold <= estimate
    except TypeError as error:
        raise r.reject(str(error), error="TypeError") from None
    if negative:
        raise r.reject(
            "--radix-eviction-policy tlru requires non-negative 'threshold' and 'next_prompt_estimate' in "
            f"--radix-eviction-policy-config, got {threshold} and {estimate}."
        )
    if useless:
        raise r.reject(
            "--radix-eviction-policy tlru needs 'threshold' greater than 'next_prompt_estimate' in "
            f"--radix-eviction-policy-config, got {threshold} <= {estimate}; otherwise no tokens are ever "
            "TEL-safe and T-LRU is exactly LRU."
        )


def _decode_offload(r: Resolution) -> None:
    if not r["disaggregation_decode_enable_offload_kvcache"]:
        return
    argument = "The argument disaggregation-decode-enable-offload-kvcache is only supported"
    if r["disaggregation_mode"] != "decode":
        raise r.reject(f"{argument} for decode side.")
    if r["hicache_storage_backend"] is None:
        raise r.reject(f"{argument} when hicache-storage-backend is provided.")
    if r["disaggregation_decode_retraction_backup"] == "host_pool":
        raise r.reject(
            "The arguments disaggregation-decode-enable-offload-kvcache and "
            "disaggregation-decode-retraction-backup=host_pool are mutually exclusive: both build a decode "
            "host pool."
        )


def _sliding_window(r: Resolution) -> None:
    ratio, tails = r["swa_full_tokens_ratio"], r["swa_prefix_tails"]
    if r["_swa_full_tokens_ratio_explicitly_set"] is None:
        r.set(
            "_swa_full_tokens_ratio_explicitly_set",
            ratio is not None,
            "Remembers whether the sliding-window share was chosen by the user.",
        )
    if ratio is not None and not 0 < ratio <= 1.0:
        raise r.reject("--swa-full-tokens-ratio should be in range (0, 1.0].")
    if tails is not None and tails < 0:
        raise r.reject("--swa-prefix-tails should be a non-negative integer.")


def _lmcache(r: Resolution) -> None:
    if r["enable_hierarchical_cache"]:
        raise r.reject("--enable-lmcache and --enable-hierarchical-cache are mutually exclusive")
    if r["enable_unified_cache_external_linker"]:
        raise r.reject("--enable-lmcache and --enable-unified-cache-external-linker are mutually exclusive")
    if r["disable_radix_cache"]:
        raise r.reject("--enable-lmcache requires radix cache to be enabled")
    cache = "LMCacheUnifiedRadixCache does not yet support"
    if r["speculative_algorithm"] not in (None, "NONE"):
        raise r.reject(f"{cache} speculative decoding", error="NotImplementedError")
    if runs_attention_dp(r):
        raise r.reject(f"{cache} DP attention", error="NotImplementedError")
    if r["dcp_size"] > 1:
        raise r.reject(
            "--enable-lmcache with --dcp-size > 1 is not supported: LMCache has no DCP-aware index translation",
            error="NotImplementedError",
        )
    if r["enable_streaming_session"]:
        raise r.reject(f"{cache} streaming sessions", error="NotImplementedError")
    if r["hicache_host_memory_mode"] == "buffer_only":
        raise r.reject("--hicache-host-memory-mode=buffer_only is a HiCache-only mode")
    if r["disaggregation_mode"] != "null":
        raise r.reject(
            "LMCacheUnifiedRadixCache currently supports colocated prefill/decode scheduling only",
            error="NotImplementedError",
        )
