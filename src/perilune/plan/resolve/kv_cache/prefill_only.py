"""Embedding servers that keep no KV cache at all (`--prefill-only-disable-kv-cache`)."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends

FLAG = "--prefill-only-disable-kv-cache"


def prefill_only_flags(r: Resolution) -> None:
    """Refuse everything that would read or write the KV pool that is not there."""
    if not r["prefill_only_disable_kv_cache"]:
        return
    if not r["is_embedding"]:
        raise r.reject(
            f"{FLAG} currently requires --is-embedding. Other prefill-only workloads may be supported in a "
            "future change once their attention paths stop reading or writing the paged KV cache."
        )
    if r["kv_cache_dtype"] in ("nvfp4", "fp4_mx_block16"):
        raise r.reject(
            f"{FLAG} does not currently support --kv-cache-dtype=nvfp4 or --kv-cache-dtype=fp4_mx_block16 "
            "because the FP4 pool uses a separate allocation path."
        )
    if r["kv_cache_dtype"] == "mxfp8":
        raise r.reject(
            f"{FLAG} does not currently support --kv-cache-dtype=mxfp8 because the MXFP8 pool stores "
            "separate scale-factor buffers."
        )
    if r["chunked_prefill_size"] != -1:
        raise r.reject(
            f"{FLAG} requires --chunked-prefill-size=-1 so the FA backend takes the fa_skip_kv_cache path; "
            "otherwise the pool would be touched between prefill chunks."
        )
    if not r["disable_radix_cache"]:
        raise r.reject(
            f"{FLAG} requires --disable-radix-cache because the radix cache indexes KV pool slots that no "
            "longer hold real data."
        )
    if r["attn_cp_size"] > 1:
        raise r.reject(
            f"{FLAG} is incompatible with --attn-cp-size > 1: the context-parallel attention path writes K/V "
            "to the pool via set_kv_buffer, which the no-op pool intentionally rejects."
        )
    if r["enable_prefill_cp"]:
        raise r.reject(
            f"{FLAG} is incompatible with --enable-prefill-cp: the prefill-CP path stages K/V through the "
            "paged cache, which the no-op pool does not support."
        )
    if r["enable_hisparse"]:
        raise r.reject(
            f"{FLAG} is incompatible with --enable-hisparse: HiSparse uses a dedicated pool family that is "
            "not the no-op MHA pool."
        )


def prefill_only_backend(r: Resolution) -> None:
    """Only FlashAttention prefills without touching the pool."""
    if not r["prefill_only_disable_kv_cache"]:
        return
    prefill, _ = attention_backends(r)
    if prefill not in ("fa3", "fa4"):
        raise r.reject(
            f"{FLAG} currently requires the FA prefill backend (fa3/fa4), but got prefill backend "
            f"{prefill!r}. Other prefill-only workloads and backends may be supported in a future change."
        )
