"""KV pages striped over the prefill ranks (`--enable-kv-cache-sharding`), and the little that goes with it.

Source: SGLang 0.5.23 `arg_groups/kv_shard_hook.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.model.traits import has_sparse_attention
from perilune.plan.resolve.graph_config import DISABLED, GraphConfig
from perilune.plan.resolve.graphs import set_phase
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends, runs_attention_dp

FLAG: Final = "--enable-kv-cache-sharding"
TREE_CORE: Final = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
MIB_PER_TOKEN: Final = 1.5  # activations reserved for each token of a prefill chunk
SMALLEST_CHUNK: Final = 2048  # tokens; the reserve is not sized below this


def kv_cache_sharding(r: Resolution) -> None:
    """Refuse what expects whole pages on every rank; align the chunk to pages and run prefill eagerly."""
    if not r["enable_kv_cache_sharding"]:
        return
    _check_role(r)
    _check_prefix_cache(r)
    _check_companions(r)
    _check_attention(r)
    _check_transfer(r)
    _check_ranks(r)
    _align_chunk(r)
    _run_eagerly(r)


def _check_role(r: Resolution) -> None:
    if r["disaggregation_mode"] != "prefill":
        raise r.reject(
            f"{FLAG} is only supported on PD prefill workers: a rank's pool holds only its stripe of every "
            "cached page, which is incompatible with local decode."
        )
    if r["speculative_algorithm"] is not None:
        raise r.reject(
            "KV sharding supports speculative decoding only for GLM DSA single-layer NextN MTP with EAGLE and topk=1."
        )
    if r["dllm_algorithm"] is not None:
        raise r.reject(
            f"{FLAG} does not support diffusion language models: DLLM admission bypasses the shard-scratch "
            "budget and resolves out of PD-prefill mode."
        )


def _check_prefix_cache(r: Resolution) -> None:
    if r["radix_cache_backend"] is not None:
        raise r.reject(
            f"{FLAG} requires the built-in UnifiedRadixCache with a rotation-aware UnifiedTreeCore and does "
            f"not support --radix-cache-backend={r['radix_cache_backend']!r}."
        )
    core = r.env.setdefault(TREE_CORE, "python")
    if not r["disable_radix_cache"] and core != "python":
        raise r.reject(
            f"{FLAG} requires the Python UnifiedTreeCore: {TREE_CORE}={core!r} is not supported for sharded KV."
        )


def _check_companions(r: Resolution) -> None:
    storage = r["enable_hierarchical_cache"] and r["hicache_storage_backend"] is not None
    refusals = (
        (
            r["enable_unified_cache_external_linker"],
            f"{FLAG} does not support --enable-unified-cache-external-linker: load-back allocates through "
            "the flat allocator API.",
        ),
        (
            r["enable_streaming_session"],
            f"{FLAG} does not support streaming sessions: their virtual nodes do not carry KV-shard rotation metadata.",
        ),
        (r["enable_session_radix_cache"], f"{FLAG} does not support session radix cache yet."),
        (
            r["enable_flexkv"],
            f"{FLAG} does not support --enable-flexkv: FlexKV load-back allocates through the stock flat "
            "allocator API.",
        ),
        (
            r["enable_unified_memory"],
            f"{FLAG} does not support --enable-unified-memory: the unified pool uses a different virtual-id "
            "allocator and layout.",
        ),
        (
            r["dcp_size"] > 1,
            f"{FLAG} and decode context parallelism (--dcp-size) are mutually exclusive users of the widened "
            "allocator index space.",
        ),
        (
            storage,
            f"{FLAG} supports HiCache host offload but not --hicache-storage-backend yet: the storage path "
            "reads and writes whole pages per rank, not each rank's own stripe.",
        ),
        *_sparse_host_cache(r),
        (r["enable_lmcache"], f"{FLAG} does not support --enable-lmcache."),
        (
            r["enable_hisparse"],
            f"{FLAG} does not support --enable-hisparse: HiSparse selects a non-sharded allocator and "
            "assumes each rank owns complete KV pages.",
        ),
        (
            r["enable_dynamic_chunking"] and r["pp_size"] > 1,
            f"{FLAG} does not support dynamic chunk sizing with pipeline parallelism: profiling and "
            "predicted chunks can exceed the fixed sharded scratch capacity. Disable "
            "--enable-dynamic-chunking.",
        ),
        (
            r["enable_two_batch_overlap"],
            f"{FLAG} does not support --enable-two-batch-overlap: the sharded pool's per-batch gather plan "
            "is a process-wide singleton, but TBO rebuilds attention metadata multiple times per extend "
            "forward and clobbers the plan.",
        ),
        (
            r.model.text.get("attention_chunk_size") is not None,
            f"{FLAG} does not support chunked/local-attention models yet: local-attention metadata is built "
            "from the page table before the scratch translation.",
        ),
    )
    for applies, text in refusals:
        if applies:
            raise r.reject(text)


def _sparse_host_cache(r: Resolution) -> tuple[tuple[bool, str], ...]:
    if not (r["enable_hierarchical_cache"] and has_sparse_attention(r.model)):
        return ()
    kernel_io = r["hicache_io_backend"] == "kernel" and r["hicache_mem_layout"] in (
        "layer_first",
        "page_first",
    )
    return (
        (
            r["hicache_host_memory_mode"] != "cache",
            "CP-sharded DSA HiCache requires host memory mode cache",
        ),
        (not kernel_io, "CP-sharded DSA HiCache requires kernel I/O with layer_first or page_first"),
    )


def _check_attention(r: Resolution) -> None:
    prefill = attention_backends(r)[0]
    if prefill == "dsa":
        _check_sparse_attention(r)
        return
    if has_sparse_attention(r.model):
        raise r.reject("DSA KV sharding requires the dsa attention backend.")
    if prefill == "fa3":
        return
    refusals = (
        (
            prefill != "trtllm_mla",
            f"{FLAG} currently requires the fa3 prefill attention backend, or trtllm_mla for plain-TP MLA; "
            f"got {prefill!r}.",
        ),
        (not r.model.is_mla, "KV sharding with trtllm_mla requires an MLA model."),
        (
            r["attn_cp_size"] > 1,
            "KV sharding with trtllm_mla only supports plain-TP MLA (attn_cp_size must be 1).",
        ),
        (
            r["disable_chunked_prefix_cache"],
            "KV sharding with trtllm_mla requires chunked prefix caching.",
        ),
    )
    for applies, text in refusals:
        if applies:
            raise r.reject(text)


def _check_sparse_attention(r: Resolution) -> None:
    interleaved = r["enable_prefill_cp"] and r["attn_cp_size"] > 1 and r["cp_strategy"] == "interleave"
    if r["device"] != "cuda" or not interleaved or r["pp_size"] != 1:
        raise r.reject("DSA KV sharding requires CUDA interleave prefill CP > 1 and PP1.")
    kernels = (r["dsa_prefill_backend"], r["dsa_decode_backend"], r["kv_cache_dtype"], r["page_size"])
    if kernels != ("trtllm", "trtllm", "fp8_e4m3", 64):
        raise r.reject("DSA KV sharding requires TRTLLM prefill/decode with fp8_e4m3 KV and page size 64.")
    raw = r.model.raw
    if (
        r["disaggregation_transfer_backend"] != "mooncake"
        or r["enable_dsa_cache_layer_split"]
        or raw.get("index_kpool", 1) != 1
        or raw.get("index_kpool_compress", False)
    ):
        raise r.reject(
            "DSA KV sharding requires Mooncake, uncompressed index_kpool=1 and no DSA cache layer splitting."
        )


def _check_transfer(r: Resolution) -> None:
    transfer = r["disaggregation_transfer_backend"]
    if transfer not in ("mooncake", "nixl"):
        raise r.reject(
            f"{FLAG} currently only supports the mooncake and nixl transfer backends: both route sends "
            "through CommonKVSender._prepare_send_indices and pair destinations by fancy index. Got "
            f"--disaggregation-transfer-backend {transfer!r}."
        )
    if r.flag_env("SGLANG_DISAGG_STAGING_BUFFER"):
        raise r.reject(
            f"{FLAG} is incompatible with SGLANG_DISAGG_STAGING_BUFFER (the staging path assumes contiguous "
            "send slices)."
        )


def _check_ranks(r: Resolution) -> None:
    context_parallel = r["attn_cp_size"] > 1
    if r.model.is_mla:
        if not context_parallel and runs_attention_dp(r):
            raise r.reject(
                f"{FLAG} for MLA models without prefill CP shards across attention-TP and requires plain TP "
                "attention; set --attn-dp-size=1."
            )
        if not context_parallel and r["tp_size"] <= 1:
            raise r.reject(
                f"{FLAG} for MLA models without prefill CP shards across attention-TP ranks and needs tp_size > 1."
            )
    elif not (r["enable_prefill_cp"] and context_parallel):
        raise r.reject(
            f"{FLAG} for GQA models shards across attention-CP ranks and requires --enable-prefill-cp with "
            "attn_cp_size > 1."
        )


def _align_chunk(r: Resolution) -> None:
    page, chunk = r["page_size"] or 1, r["chunked_prefill_size"]
    if page <= 1:
        raise r.reject(
            f"{FLAG} requires a real page size (--page-size 64 recommended): the physical page is the P/D "
            "transfer descriptor and gather-copy unit; page_size=1 degenerates both into per-token "
            "operations."
        )
    if chunk is None or chunk <= 0:
        raise r.reject(f"{FLAG} requires chunked prefill (--chunked-prefill-size > 0).")
    rounded = -(-chunk // page) * page
    if rounded == chunk:
        return
    extra_mib = MIB_PER_TOKEN * (max(rounded, SMALLEST_CHUNK) - max(chunk, SMALLEST_CHUNK))
    if r.written["mem_fraction_static"] is None and extra_mib > 0:
        fraction = r["mem_fraction_static"] - extra_mib / r.platform.memory_mib
        if fraction <= 0:
            raise r.reject(
                "Auto-rounding --chunked-prefill-size for KV sharding would consume all automatically "
                f"reserved GPU memory; pass a smaller multiple of {page}."
            )
        r.set("mem_fraction_static", fraction, "Room for the activations of the rounded chunk.")
    r.set("chunked_prefill_size", rounded, f"Whole pages of {page} tokens for KV sharding.")
    r.warn(f"Chunks are rounded up to {rounded} tokens, a multiple of the page size {page}.")


def _run_eagerly(r: Resolution) -> None:
    graphs: GraphConfig = r["cuda_graph_config"]
    if graphs.prefill.backend != DISABLED:
        r.warn("Prefill CUDA graphs are off: they do not work with KV sharding.")
        set_phase(r, "prefill", "Not compatible with KV sharding.", backend=DISABLED)
