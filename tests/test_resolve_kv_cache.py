"""The KV cache: element formats, prefix cache, host offload, page-major layout and the unified pool."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

QWEN = "--model-path Qwen/Qwen3-Next-80B-A3B-Instruct --tp-size 4"
DFLASH = "--speculative-algorithm DFLASH --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
DRAFT = "--speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
TWO_NODES = "--tp-size 16 --nnodes 2 --dist-init-addr 1.1.1.1:1"
LLAMA = "--model-path meta-llama/Llama-3.3-70B-Instruct"
DECODE = "--disaggregation-mode decode --disaggregation-transfer-backend nixl"
NO_CACHE = "--prefill-only-disable-kv-cache --is-embedding"
UNIFIED = "--enable-unified-memory"
NVFP4 = "--kv-cache-dtype nvfp4"
HICACHE = "--enable-hierarchical-cache"

UNIFIED_MEMORY = table(
    "enable_page_major_kv_layout",
    ("b300", UNIFIED, True),
    ("b300", f"--dcp-size 8 {UNIFIED}", True),
    ("b300", f"{UNIFIED} DSPARK", True),
    ("b300", f"--dcp-size 8 {UNIFIED} DSPARK", True),
    ("b300", f"{UNIFIED} {EAGLE3} --speculative-draft-attention-backend triton", True),
    ("h200", f"{TWO_NODES} {UNIFIED}", True),
    ("h200", f"{TWO_NODES} {UNIFIED} {DFLASH}", True),
    ("b300", f"{UNIFIED} --disaggregation-mode decode", True),
    ("b300", f"{QWEN} {UNIFIED}", True),
)
FULL_PREFILL_GRAPHS = table(
    "prefill.backend",
    ("b300", f"{UNIFIED} --cuda-graph-backend-prefill full", "disabled"),
)
NVFP4_CACHE = table(
    (
        "kv_cache_dtype prefill_attention_backend decode_attention_backend prefill_kv_cache_dequant_dtype "
        "speculative_draft_attention_backend speculative_attention_mode"
    ),
    ("b300", f"{LLAMA} {NVFP4}", "nvfp4", "trtllm_mha", "trtllm_mha", "nvfp4", None, "prefill"),
    (
        "b300",
        f"{LLAMA} {NVFP4} --prefill-kv-cache-dequant-dtype fp8_e4m3",
        "nvfp4",
        "flashinfer",
        "trtllm_mha",
        "fp8_e4m3",
        None,
        "prefill",
    ),
    (
        "b300",
        (
            f"{LLAMA} {NVFP4} --prefill-kv-cache-dequant-dtype fp8_e4m3 {EAGLE3} --speculative-num-steps 3 "
            "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
        ),
        "nvfp4",
        "flashinfer",
        "trtllm_mha",
        "fp8_e4m3",
        "trtllm_mha",
        "decode",
    ),
    (
        "b300",
        f"{LLAMA} --kv-cache-dtype fp4_mx_block16 --attention-backend triton",
        "fp4_mx_block16",
        None,
        None,
        "auto",
        None,
        "prefill",
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --attention-backend flashinfer",
        "nvfp4",
        "flashinfer",
        "trtllm_mha",
        "fp8_e4m3",
        None,
        "prefill",
    ),
)
SLIDING_WINDOW_SHARE = table(
    "swa_full_tokens_ratio _swa_full_tokens_ratio_explicitly_set",
    ("b300", "--swa-full-tokens-ratio 0.5", 0.5, True),
    ("b300", "", 0.8, False),
)
NO_CACHE_AT_ALL = table(
    "prefill_only_disable_kv_cache attention_backend",
    ("h200", f"{LLAMA} {NO_CACHE} --chunked-prefill-size -1 --disable-radix-cache", True, "fa3"),
)
EVICTION = table(
    "radix_eviction_policy",
    (
        "b300",
        (
            '--radix-eviction-policy tlru --radix-eviction-policy-config \'{"threshold": 4096, '
            '"next_prompt_estimate": 512}\''
        ),
        "tlru",
    ),
)
UNIFIED_DRAFT_IS_REFUSED = refusals(
    (
        "h200",
        (
            f"{TWO_NODES} {UNIFIED} {EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 4 "
            "--speculative-num-draft-tokens 8"
        ),
        (
            "AssertionError: --enable-unified-memory supports a linear draft chain only "
            "(--speculative-eagle-topk in {None, 1}); tree verify relocates accepted tokens one at a time "
            "inside the target pool, which the unified pool's page-granular move_kv_cache cannot express. Got "
            "--speculative-eagle-topk=4."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1",
        (
            "AssertionError: --enable-unified-memory only supports --speculative-algorithm DSPARK, DFLASH, "
            "EAGLE and EAGLE3; other speculative algorithms are not yet audited for the unified pool's "
            "virtual-to-physical loc translation. Got --speculative-algorithm='NGRAM'."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} {EAGLE3}",
        (
            "AssertionError: --enable-unified-memory + EAGLE/EAGLE3 runs the draft on ['trtllm_mla'], but a "
            "fused draft is MHA-shaped and reads its KV through the translated MHA rails ['fa3', 'flashinfer', "
            "'triton', 'trtllm_mha']. Set --speculative-draft-attention-backend to one of them."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} {DFLASH}",
        (
            "AssertionError: --enable-unified-memory + DFLASH requires spec-verify-audited attention backends "
            "['fa3', 'flashinfer', 'triton', 'trtllm_mha'] for both prefill and decode; got ['trtllm_mla']. "
            "Other backends do not translate speculative verify indices to the unified pool's physical ids yet."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} {HICACHE} {EAGLE3} --speculative-draft-attention-backend triton",
        (
            "AssertionError: --enable-unified-memory + EAGLE/EAGLE3 does not support "
            "--enable-hierarchical-cache: HiCache keeps the draft on a private pool, and would pack an MTP "
            "head's KV into the target's page-envelope host pool, which refuses per-layer draft loads."
        ),
    ),
    (
        "b300",
        (
            f"{LLAMA} {UNIFIED} {EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 4"
        ),
        (
            "AssertionError: --enable-unified-memory + EAGLE/EAGLE3 requires a unified target (hybrid-SWA or a "
            "mamba hybrid): the draft's KV lives fused inside the target's sub-pool entries."
        ),
    ),
    (
        "b300",
        f"{QWEN} {UNIFIED} --attention-backend fa4 {EAGLE3}",
        (
            "AssertionError: --enable-unified-memory + EAGLE/EAGLE3 requires the target on the "
            "spec-verify-audited attention backends ['fa3', 'flashinfer', 'triton', 'trtllm_mha'] (got "
            "['fa4'])."
        ),
    ),
    (
        "b300",
        (
            f"{UNIFIED} --disaggregation-mode decode --disaggregation-decode-retraction-backup host_pool "
            f"{EAGLE3} --speculative-draft-attention-backend triton"
        ),
        (
            "AssertionError: --enable-unified-memory with PD disaggregation does not support speculative "
            "decoding with the Mooncake transfer backend."
        ),
    ),
)
UNIFIED_ROLE_IS_REFUSED = refusals(
    (
        "b300",
        f"{UNIFIED} {DECODE}",
        (
            "AssertionError: --enable-unified-memory with PD disaggregation supports only these transfer "
            "backends: mooncake; got 'nixl'."
        ),
    ),
    (
        "b300",
        f"--tp-size 1 --pp-size 8 {UNIFIED} --disaggregation-mode prefill",
        (
            "AssertionError: --enable-unified-memory with PD disaggregation does not support pipeline "
            "parallelism (whole-envelope transfer has no per-layer entries to subset)."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --disaggregation-mode decode DSPARK",
        (
            "AssertionError: --enable-unified-memory with PD disaggregation does not support speculative "
            "decoding with the Mooncake transfer backend."
        ),
    ),
    (
        "b300",
        f"SGLANG_DISABLE_LAZY_COMPACTION=1 {UNIFIED} --disaggregation-mode decode",
        (
            "AssertionError: --enable-unified-memory with PD disaggregation requires lazy compaction; unset "
            "SGLANG_DISABLE_LAZY_COMPACTION."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --disaggregation-mode decode --disaggregation-decode-retraction-backup host_pool",
        "AssertionError: --enable-unified-memory host-pool decode retraction does not support hybrid-Mamba models.",
    ),
    (
        "b300",
        (
            f"{UNIFIED} --disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
            "--hicache-storage-backend file"
        ),
        "AssertionError: --enable-unified-memory decode KV offload does not support MLA models yet.",
    ),
    (
        "b300",
        (
            f"{UNIFIED} --disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
            "--hicache-storage-backend mooncake"
        ),
        (
            "AssertionError: --enable-unified-memory with decode KV offload currently supports "
            "--hicache-storage-backend=file only."
        ),
    ),
    (
        "b300",
        f"--dcp-size 8 {UNIFIED} --disaggregation-mode decode",
        (
            "AssertionError: --enable-unified-memory with decode context parallelism (--dcp-size > 1) does not "
            "support PD disaggregation: the transfer ships whole page envelopes, which under DCP hold only "
            "this rank's shard of each widened page. Rejected here rather than at the first KV transfer, where "
            "translate_kv_indices_for_transfer would abort a server that had already booted."
        ),
    ),
    (
        "b300",
        f"{QWEN} {UNIFIED} --dcp-size 2",
        (
            "AssertionError: --enable-unified-memory with decode context parallelism (--dcp-size > 1) supports "
            "MLA models only (e.g. kimi-linear): the MHA unified pool has no DCP-aware masked write path "
            "(UnifiedMHATokenToKVPool.set_kv_buffer asserts dcp_kv_mask is None)."
        ),
    ),
    (
        "b300",
        (
            f"{QWEN} {UNIFIED} --disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
            "--hicache-storage-backend file"
        ),
        "AssertionError: --enable-unified-memory decode KV offload does not support hybrid-Mamba models.",
    ),
)
UNIFIED_FEATURE_IS_REFUSED = refusals(
    (
        "b300",
        f"--attn-dp-size 8 {UNIFIED} --enable-two-batch-overlap",
        (
            "AssertionError: --enable-unified-memory does not support --enable-two-batch-overlap: the "
            "iteration's read tables are indexed by the whole batch's rows, and a TBO child's readers do not "
            "offset into them."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --enable-lmcache",
        (
            "AssertionError: --enable-unified-memory is not yet compatible with --enable-lmcache: the LMCache "
            "offload path indexes the device buffers with the ids it is handed, and under the unified pool "
            "those are VIRTUAL."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --enable-unified-cache-external-linker",
        (
            "AssertionError: --enable-unified-memory does not support --enable-unified-cache-external-linker: "
            "direct L3 transfers do not preserve unified page-envelope indices and compaction lifetimes. Use "
            "--enable-hierarchical-cache for supported L2/L3 transfers."
        ),
    ),
)
PAGE_MAJOR_IS_REFUSED = refusals(
    (
        "b300",
        "--enable-page-major-kv-layout",
        (
            "AssertionError: --enable-page-major-kv-layout without --enable-unified-memory is temporarily "
            "unsupported: the strided MHA K/V views were removed and the static-pool page-major layout awaits "
            "its per-layer-view reimplementation. Run with --enable-unified-memory, or drop "
            "--enable-page-major-kv-layout."
        ),
    ),
    (
        "mi355x",
        f"--attention-backend aiter {UNIFIED}",
        (
            "AssertionError: --enable-page-major-kv-layout: the resolved attention backends ['aiter'] are not "
            "in the allowed set ['cutedsl_mla', 'fa3', 'flashinfer', 'flashmla', 'triton', 'trtllm_mla'] for "
            "this configuration. Pass a compatible --attention-backend."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --attention-backend fa4 DSPARK",
        (
            "AssertionError: --enable-page-major-kv-layout: the resolved attention backends ['fa4'] are not in "
            "the allowed set ['cutedsl_mla', 'fa3', 'flashinfer', 'flashmla', 'triton', 'trtllm_mla'] for this "
            "configuration. Pass a compatible --attention-backend."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --mamba-backend flashinfer",
        (
            "AssertionError: --enable-page-major-kv-layout requires the Triton Mamba kernels for the strided "
            "conv/SSM state; got 'flashinfer'. Pass --mamba-backend triton."
        ),
    ),
    (
        "b300",
        f"{QWEN} {UNIFIED} --linear-attn-prefill-backend cutedsl",
        (
            "AssertionError: --enable-page-major-kv-layout: linear-attention PREFILL backend must be one of "
            "['flashinfer', 'flashkda', 'triton'] for the strided conv/SSM state; got 'cutedsl'."
        ),
    ),
    (
        "b300",
        f"{UNIFIED} --linear-attn-prefill-backend nvidia_kda",
        (
            "AssertionError: --enable-page-major-kv-layout: linear-attention PREFILL backend must be one of "
            "['cutedsl', 'flashinfer', 'flashkda', 'helion', 'triton'] for the strided conv/SSM state; got "
            "'nvidia_kda'."
        ),
    ),
)
RETRACTION_IS_REFUSED = refusals(
    (
        "b300",
        "--disaggregation-decode-retraction-backup host_pool",
        "ValueError: --disaggregation-decode-retraction-backup=host_pool is only supported on a PD decode server.",
    ),
    (
        "b300",
        f"--dcp-size 8 {DECODE} --disaggregation-decode-retraction-backup host_pool",
        "ValueError: --disaggregation-decode-retraction-backup=host_pool does not support --dcp-size > 1.",
    ),
    (
        "b300",
        f"{DECODE} --disaggregation-decode-retraction-backup host_pool --enable-priority-scheduling",
        (
            "ValueError: --disaggregation-decode-retraction-backup=host_pool requires "
            "--disable-priority-preemption when priority scheduling is enabled."
        ),
    ),
)
EVICTION_IS_REFUSED = refusals(
    (
        "b300",
        "--radix-eviction-policy tlru",
        (
            "ValueError: --radix-eviction-policy tlru needs 'threshold' greater than 'next_prompt_estimate' in "
            "--radix-eviction-policy-config, got 0 <= 0; otherwise no tokens are ever TEL-safe and T-LRU is "
            "exactly LRU."
        ),
    ),
    (
        "b300",
        "--radix-eviction-policy tlru --radix-eviction-policy-config '{\"threshold\": -1}'",
        (
            "ValueError: --radix-eviction-policy tlru requires non-negative 'threshold' and "
            "'next_prompt_estimate' in --radix-eviction-policy-config, got -1 and 0."
        ),
    ),
    (
        "b300",
        '--radix-eviction-policy tlru --radix-eviction-policy-config \'{"threshold": "many"}\'',
        "TypeError: '<' not supported between instances of 'str' and 'int'",
    ),
    (
        "b300",
        "--radix-eviction-policy tlru --radix-eviction-policy-config '[1]'",
        "AttributeError: 'list' object has no attribute 'get'",
    ),
)
PREFIX_CACHE_IS_REFUSED = refusals(
    (
        "b300",
        f"{HICACHE} --disable-radix-cache",
        (
            "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are mutually "
            "exclusive and cannot be used at the same time. Please use only one of them."
        ),
    ),
    (
        "b300",
        "--disaggregation-decode-enable-offload-kvcache",
        "ValueError: The argument disaggregation-decode-enable-offload-kvcache is only supported for decode side.",
    ),
    (
        "b300",
        f"{DECODE} --disaggregation-decode-enable-offload-kvcache",
        (
            "ValueError: The argument disaggregation-decode-enable-offload-kvcache is only supported when "
            "hicache-storage-backend is provided."
        ),
    ),
    (
        "b300",
        (
            f"{DECODE} --disaggregation-decode-enable-offload-kvcache --hicache-storage-backend file "
            "--disaggregation-decode-retraction-backup host_pool"
        ),
        (
            "ValueError: The arguments disaggregation-decode-enable-offload-kvcache and "
            "disaggregation-decode-retraction-backup=host_pool are mutually exclusive: both build a decode "
            "host pool."
        ),
    ),
)
SLIDING_WINDOW_IS_REFUSED = refusals(
    ("b300", "--swa-full-tokens-ratio 1.5", "ValueError: --swa-full-tokens-ratio should be in range (0, 1.0]."),
    ("b300", "--swa-prefix-tails -1", "ValueError: --swa-prefix-tails should be a non-negative integer."),
)
LMCACHE_IS_REFUSED = refusals(
    (
        "b300",
        f"--enable-lmcache {HICACHE}",
        "ValueError: --enable-lmcache and --enable-hierarchical-cache are mutually exclusive",
    ),
    (
        "b300",
        "--enable-lmcache --disable-radix-cache",
        "ValueError: --enable-lmcache requires radix cache to be enabled",
    ),
    (
        "b300",
        "--enable-lmcache DSPARK",
        "NotImplementedError: LMCacheUnifiedRadixCache does not yet support speculative decoding",
    ),
    (
        "b300",
        "--attn-dp-size 2 --enable-lmcache",
        "NotImplementedError: LMCacheUnifiedRadixCache does not yet support DP attention",
    ),
    (
        "b300",
        "--dcp-size 8 --enable-lmcache",
        (
            "NotImplementedError: --enable-lmcache with --dcp-size > 1 is not supported: LMCache has no "
            "DCP-aware index translation"
        ),
    ),
    (
        "b300",
        "--enable-lmcache --enable-streaming-session",
        "NotImplementedError: LMCacheUnifiedRadixCache does not yet support streaming sessions",
    ),
    (
        "b300",
        "--enable-lmcache --disaggregation-mode prefill",
        "NotImplementedError: LMCacheUnifiedRadixCache currently supports colocated prefill/decode scheduling only",
    ),
    (
        "b300",
        "--enable-lmcache --hicache-host-memory-mode buffer_only",
        "ValueError: --hicache-host-memory-mode=buffer_only is a HiCache-only mode",
    ),
    (
        "b300",
        "--enable-lmcache --enable-unified-cache-external-linker",
        "ValueError: --enable-lmcache and --enable-unified-cache-external-linker are mutually exclusive",
    ),
)
EMBEDDING_OFFLOAD_IS_REFUSED = refusals(
    (
        "b300",
        "--ple-offload-embedding --cpu-offload-gb 4",
        (
            "ValueError: --ple-offload-embedding cannot be combined with --cpu-offload-gb or "
            "--offload-group-size: generic layer offload would stage the pinned PLE embedding back to the "
            "device."
        ),
    ),
    (
        "b300",
        "--ple-offload-backend file --no-ple-offload-embedding",
        (
            "ValueError: --ple-offload-backend file requires --ple-offload-embedding: the file-backed table is "
            "the offloaded table."
        ),
    ),
)
NVFP4_PREFILL_IS_REFUSED = refusals(
    (
        "b300",
        "--prefill-kv-cache-dequant-dtype nvfp4",
        "ValueError: --prefill-kv-cache-dequant-dtype applies only with --kv-cache-dtype=nvfp4.",
    ),
    (
        "b300",
        NVFP4,
        (
            "ValueError: NVFP4 prefill supports an FP8 E4M3 workspace or native NVFP4, but backend "
            "'trtllm_mla' provides neither."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NVFP4} --prefill-kv-cache-dequant-dtype nvfp4",
        (
            "ValueError: Native NVFP4 prefill currently requires SM100; use "
            "--prefill-kv-cache-dequant-dtype=fp8_e4m3 on this platform."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --attention-backend fa4",
        (
            "ValueError: NVFP4 prefill supports an FP8 E4M3 workspace or native NVFP4, but backend 'fa4' "
            "provides neither."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --prefill-kv-cache-dequant-dtype nvfp4 --prefill-attention-backend flashinfer",
        (
            "ValueError: --prefill-kv-cache-dequant-dtype=nvfp4 requires prefill backend 'trtllm_mha', but "
            "--prefill-attention-backend='flashinfer' was set. Remove the backend option and select the KV "
            "dtype only."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --decode-attention-backend flashinfer",
        (
            "ValueError: NVFP4 decode requires --decode-attention-backend=trtllm_mha; got 'flashinfer'. Remove "
            "the backend option; NVFP4 selects the supported decode implementation automatically."
        ),
    ),
)
FP4_CACHE_IS_REFUSED = refusals(
    (
        "h200",
        f"{LLAMA} {NVFP4}",
        (
            "RuntimeError: --kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120. Use "
            "--kv-cache-dtype=fp4_mx_block16 for the block-size-16 FP4 recipe."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} {DFLASH}",
        "ValueError: SM100 native NVFP4 speculative decoding does not yet support DFLASH; use EAGLE/NEXTN or NGRAM.",
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --speculative-algorithm STANDALONE {DRAFT}",
        (
            "ValueError: SM100 native NVFP4 speculative decoding supports EAGLE, EAGLE3, NEXTN, and breadth-1 "
            "NGRAM; got STANDALONE."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --speculative-algorithm NGRAM",
        (
            "ValueError: SM100 native NVFP4 NGRAM speculative decoding requires "
            "--speculative-ngram-max-bfs-breadth=1 because trtllm_mha supports linear target verification "
            "only; got 10."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} {EAGLE3} --speculative-draft-attention-backend triton",
        (
            "ValueError: SM100 native NVFP4 speculative decoding requires "
            "--speculative-draft-attention-backend=trtllm_mha so the draft worker consumes its physical NVFP4 "
            "KV layout; got 'triton'."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} --disaggregation-mode prefill",
        (
            "ValueError: SM100 native NVFP4 with trtllm_mha does not yet support PD disaggregation because its "
            "physical block-scale layout is not implemented by the KV transfer path."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} {HICACHE}",
        (
            "ValueError: SM100 native NVFP4 with trtllm_mha does not yet support hierarchical KV cache or "
            "LMCache because their host pools do not preserve the physical block-scale layout."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NVFP4} {UNIFIED}",
        (
            "ValueError: FP4 KV cache does not yet support --enable-unified-memory: the unified MHA pool does "
            "not allocate FP4 block scales or the prefill dequant workspace."
        ),
    ),
    (
        "b300",
        "--kv-cache-dtype fp4_mx_block16 --attention-backend triton",
        "AssertionError: KV4 MLA expects attention_backend to be one of ['flashinfer', 'trtllm_mla'], but got triton",
    ),
    ("mi355x", "--kv-cache-dtype fp4_mx_block16", "RuntimeError: KV4 is not tested on non-CUDA platforms."),
    (
        "h200",
        f"{LLAMA} --kv-cache-dtype fp4_mx_block16",
        (
            "AssertionError: KV4 MHA expects attention_backend to be one of ['triton', 'torch_native', "
            "'flex_attention', 'trtllm_mha'], but got fa3"
        ),
    ),
    (
        "b300",
        f"{LLAMA} --kv-cache-dtype fp4_mx_block16 --attention-backend fa4",
        (
            "AssertionError: KV4 FA4 MHA expects decode_attention_backend to be one of ['triton', "
            "'torch_native', 'flex_attention'], but got fa4"
        ),
    ),
)
MXFP8_CACHE_IS_REFUSED = refusals(
    (
        "h200",
        f"{LLAMA} --kv-cache-dtype mxfp8",
        (
            "ValueError: --kv-cache-dtype mxfp8 requires an SM100+ (Blackwell) GPU for the block-scaled "
            "operands used by the FA4 MXFP8 attention path."
        ),
    ),
)
NO_CACHE_IS_REFUSED = refusals(
    (
        "h200",
        f"{LLAMA} --prefill-only-disable-kv-cache",
        (
            "ValueError: --prefill-only-disable-kv-cache currently requires --is-embedding. Other prefill-only "
            "workloads may be supported in a future change once their attention paths stop reading or writing "
            "the paged KV cache."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NO_CACHE} {NVFP4}",
        (
            "ValueError: --prefill-only-disable-kv-cache does not currently support --kv-cache-dtype=nvfp4 or "
            "--kv-cache-dtype=fp4_mx_block16 because the FP4 pool uses a separate allocation path."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NO_CACHE} --kv-cache-dtype mxfp8",
        (
            "ValueError: --prefill-only-disable-kv-cache does not currently support --kv-cache-dtype=mxfp8 "
            "because the MXFP8 pool stores separate scale-factor buffers."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NO_CACHE}",
        (
            "ValueError: --prefill-only-disable-kv-cache requires --chunked-prefill-size=-1 so the FA backend "
            "takes the fa_skip_kv_cache path; otherwise the pool would be touched between prefill chunks."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NO_CACHE} --chunked-prefill-size -1",
        (
            "ValueError: --prefill-only-disable-kv-cache requires --disable-radix-cache because the radix "
            "cache indexes KV pool slots that no longer hold real data."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NO_CACHE} --chunked-prefill-size -1 --disable-radix-cache --attn-cp-size 2",
        (
            "ValueError: --prefill-only-disable-kv-cache is incompatible with --attn-cp-size > 1: the "
            "context-parallel attention path writes K/V to the pool via set_kv_buffer, which the no-op pool "
            "intentionally rejects."
        ),
    ),
    (
        "h200",
        f"{LLAMA} {NO_CACHE} --chunked-prefill-size -1 --disable-radix-cache --enable-hisparse",
        (
            "ValueError: --prefill-only-disable-kv-cache is incompatible with --enable-hisparse: HiSparse uses "
            "a dedicated pool family that is not the no-op MHA pool."
        ),
    ),
    (
        "b300",
        f"{LLAMA} {NO_CACHE} --chunked-prefill-size -1 --disable-radix-cache",
        (
            "ValueError: --prefill-only-disable-kv-cache currently requires the FA prefill backend (fa3/fa4), "
            "but got prefill backend 'trtllm_mha'. Other prefill-only workloads and backends may be supported "
            "in a future change."
        ),
    ),
)


@pytest.mark.parametrize("case", **named(UNIFIED_MEMORY))
def test_unified_memory(case: Case) -> None:
    """The unified pool is page-major, with every draft and role it knows."""
    check(case)


@pytest.mark.parametrize("case", **named(FULL_PREFILL_GRAPHS))
def test_full_prefill_graphs(case: Case) -> None:
    """Full prefill graphs over the unified pool need fa3 or fa4."""
    check(case)


@pytest.mark.parametrize("case", **named(NVFP4_CACHE))
def test_nvfp4_cache(case: Case) -> None:
    """An NVFP4 cache chooses prefill and decode kernels, and those of its draft."""
    check(case)


@pytest.mark.parametrize("case", **named(SLIDING_WINDOW_SHARE))
def test_sliding_window_share(case: Case) -> None:
    """The share is 0.8, and the engine remembers who chose it."""
    check(case)


@pytest.mark.parametrize("case", **named(NO_CACHE_AT_ALL))
def test_no_cache_at_all(case: Case) -> None:
    """An embedding server on FlashAttention runs without a KV cache."""
    check(case)


@pytest.mark.parametrize("case", **named(EVICTION))
def test_eviction(case: Case) -> None:
    """A prefix cache may keep what a next prompt is likely to need."""
    check(case)


@pytest.mark.parametrize("case", **named(UNIFIED_DRAFT_IS_REFUSED))
def test_unified_draft_is_refused(case: Case) -> None:
    """Drafts whose indices the unified pool cannot translate."""
    check(case)


@pytest.mark.parametrize("case", **named(UNIFIED_ROLE_IS_REFUSED))
def test_unified_role_is_refused(case: Case) -> None:
    """Roles and transfers the unified pool does not serve."""
    check(case)


@pytest.mark.parametrize("case", **named(UNIFIED_FEATURE_IS_REFUSED))
def test_unified_feature_is_refused(case: Case) -> None:
    """Features that index KV by their own ids."""
    check(case)


@pytest.mark.parametrize("case", **named(PAGE_MAJOR_IS_REFUSED))
def test_page_major_is_refused(case: Case) -> None:
    """Kernels that do not read strided rows."""
    check(case)


@pytest.mark.parametrize("case", **named(RETRACTION_IS_REFUSED))
def test_retraction_is_refused(case: Case) -> None:
    """A host pool for retracted requests."""
    check(case)


@pytest.mark.parametrize("case", **named(EVICTION_IS_REFUSED))
def test_eviction_is_refused(case: Case) -> None:
    """T-LRU needs a threshold above its estimate."""
    check(case)


@pytest.mark.parametrize("case", **named(PREFIX_CACHE_IS_REFUSED))
def test_prefix_cache_is_refused(case: Case) -> None:
    """Host tiers need a prefix cache, and a decode server's offload needs storage."""
    check(case)


@pytest.mark.parametrize("case", **named(SLIDING_WINDOW_IS_REFUSED))
def test_sliding_window_is_refused(case: Case) -> None:
    """A share is a fraction, tails are a count."""
    check(case)


@pytest.mark.parametrize("case", **named(LMCACHE_IS_REFUSED))
def test_lmcache_is_refused(case: Case) -> None:
    """LMCache and everything it does not serve yet."""
    check(case)


@pytest.mark.parametrize("case", **named(EMBEDDING_OFFLOAD_IS_REFUSED))
def test_embedding_offload_is_refused(case: Case) -> None:
    """Per-layer embeddings on the host exclude the generic offload."""
    check(case)


@pytest.mark.parametrize("case", **named(NVFP4_PREFILL_IS_REFUSED))
def test_nvfp4_prefill_is_refused(case: Case) -> None:
    """Prefill of an NVFP4 cache."""
    check(case)


@pytest.mark.parametrize("case", **named(FP4_CACHE_IS_REFUSED))
def test_fp4_cache_is_refused(case: Case) -> None:
    """GPUs, kernels, drafts and pools without FP4."""
    check(case)


@pytest.mark.parametrize("case", **named(MXFP8_CACHE_IS_REFUSED))
def test_mxfp8_cache_is_refused(case: Case) -> None:
    """MXFP8 needs Blackwell."""
    check(case)


@pytest.mark.parametrize("case", **named(NO_CACHE_IS_REFUSED))
def test_no_cache_is_refused(case: Case) -> None:
    """What would touch a pool that is not there."""
    check(case)
