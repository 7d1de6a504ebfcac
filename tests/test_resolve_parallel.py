"""Rank layout: attention DP, DCP and CP, KV sharding, expert placement, elastic expert parallelism."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, outcome, refusals

DEEPSEEK = "--model-path deepseek-ai/DeepSeek-V3"
GLM = "--model-path zai-org/GLM-5.3-Flash"
LLAMA = "--model-path meta-llama/Llama-3.3-70B-Instruct"
NEMOTRON = "--model-path nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
CONTEXT = "--attn-cp-size 8 --enable-prefill-cp --cp-strategy interleave"
JOIN = "--elastic-ep-join-mode scale --node-rank 1"
SCALE = "--elastic-ep-backend mooncake --max-ep-size 16"
SHARDED = "--enable-kv-cache-sharding --disaggregation-mode prefill"

LAYOUTS = [
    Case(
        "b300",
        "--dp-size 4 --enable-dp-attention",
        {
            "attn_dp_size": 4,
            "dp_size": 1,
            "enable_dp_attention": False,
            "chunked_prefill_size": 4096,
            "schedule_conservativeness": 0.3,
        },
    ),
    Case(
        "b300",
        "--attn-dp-size 8 --enable-dp-attention",
        {"attn_dp_size": 8, "enable_dp_attention": False, "enable_tp_lm_head_all_to_all": False},
    ),
    Case("b300", "--attn-dp-size 8 --enable-dp-lm-head", {"enable_dp_lm_head": True}),
    Case("b300", "--enable-dp-lm-head", {"enable_dp_lm_head": False}),
    Case("b300", "--attn-dp-size 8 --enable-tp-lm-head-all-to-all", {"enable_tp_lm_head_all_to_all": True}),
    Case("b300", "--attn-dp-size 8 --disaggregation-mode decode", {"enable_tp_lm_head_all_to_all": True}),
    Case(
        "b300",
        "--attn-dp-size 4 --cuda-graph-backend-prefill breakable",
        {"chunked_prefill_size": 4096, "prefill.max_bs": 4096},
    ),
    Case(
        "b300",
        "--attn-dp-size 4 --cuda-graph-backend-prefill breakable --cuda-graph-max-bs-prefill 8192",
        {"prefill.max_bs": 8192},
    ),
    Case(
        "b300",
        "--attn-dp-size 4 --cuda-graph-backend-prefill breakable --cuda-graph-bs-prefill 128 8192",
        {"chunked_prefill_size": 4096, "prefill.max_bs": 4096, "prefill.bs": [128, 8192]},
    ),
    Case("b300", "--pp-size 2", {"disable_overlap_schedule": True}),
    Case("b300", "--dp-size 2", {"dp_size": 2, "attn_dp_size": 1}),
    Case("b300", "SGLANG_RUST_SERVER=1 --attn-dp-size 8", {"enable_dp_attention_local_control_broadcast": True}),
    Case(
        "b300",
        "--dwdp-size 8",
        {
            "attn_dp_size": 8,
            "dp_size": 1,
            "ep_size": 8,
            "enable_dp_lm_head": True,
            "moe_dense_tp_size": 1,
            "moe_a2a_backend": "none",
            "decode.backend": "disabled",
        },
    ),
    Case("b300", "--dcp-size 8", {"dcp_comm_backend": "fi_a2a", "dcp_replicate_q_proj": True}),
    Case("b300", "--tp-size 16 --dcp-size 16 --nnodes 2", {"dcp_comm_backend": "a2a"}),
    Case("b200", "--tp-size 16 --dcp-size 16 --nnodes 2", {"dcp_comm_backend": "a2a"}),
    Case("gb300", "--tp-size 16 --dcp-size 16 --nnodes 2", {"dcp_comm_backend": "fi_a2a"}),
    Case("b200", "--tp-size 16 --dcp-size 16 --nnodes 2 --pp-size 2", {"dcp_comm_backend": "fi_a2a"}),
    Case("b300", "--dcp-size 2 --dcp-replicate-q-proj", {"dcp_comm_backend": "fi_a2a", "dcp_replicate_q_proj": True}),
    Case("b300", "--attn-cp-size 2", {"attn_cp_size": 2}),
    Case(
        "b300",
        "--attn-cp-size 8 --enable-prefill-cp --cp-strategy zigzag",
        {"cp_strategy": "zigzag", "prefill.backend": "disabled"},
    ),
    Case("b300", "--moe-dp-size 2 --ep-size 4 --attn-cp-size 2", {"moe_dp_size": 2, "ep_size": 4}),
    Case("b300", "--enable-attn-tp-input-scattered", {"enable_attn_tp_input_scattered": False}),
    Case("b300", f"{NEMOTRON} --enable-attn-tp-input-scattered", {"enable_attn_tp_input_scattered": False}),
    Case("b300", f"{DEEPSEEK} --enable-attn-tp-input-scattered", {"enable_attn_tp_input_scattered": True}),
    Case("b300", f"{GLM} {CONTEXT} --disable-radix-cache", {"enable_cp_tp_group_sharing": True}),
    Case(
        "b300",
        f"{GLM} {CONTEXT} --speculative-algorithm EAGLE --disable-radix-cache",
        {"enable_cp_tp_group_sharing": True, "speculative_algorithm": "EAGLE"},
    ),
    Case(
        "b300",
        f"{GLM} --disable-radix-cache {CONTEXT} --disaggregation-mode prefill --speculative-algorithm "
        "DFLASH --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
        {"enable_cp_tp_group_sharing": True, "speculative_algorithm": "DFLASH"},
    ),
    Case("b300", f"{SHARDED}", {"page_size": 64, "prefill.backend": "disabled", "chunked_prefill_size": 16384}),
    Case(
        "b300",
        f"{SHARDED} --chunked-prefill-size 10000",
        {"chunked_prefill_size": 10048, "mem_fraction_static": 0.8815757198952879},
    ),
    Case(
        "b300",
        f"{SHARDED} --chunked-prefill-size 10000 --mem-fraction-static 0.8",
        {"chunked_prefill_size": 10048, "mem_fraction_static": 0.8},
    ),
    Case("b300", f"{SHARDED} --cuda-graph-backend-prefill breakable", {"prefill.backend": "disabled"}),
    Case("h200", f"{SHARDED} --page-size 64", {"page_size": 64, "attention_backend": "fa3"}),
    Case(
        "b300",
        "--shared-experts-tp-size 2 --moe-a2a-backend megamoe --moe-runner-backend deep_gemm",
        {"shared_experts_tp_size": 2, "ep_size": 8},
    ),
    Case(
        "b300",
        "--enable-eplb --ep-size 8",
        {
            "ep_dispatch_algorithm": "dynamic",
            "expert_distribution_recorder_mode": "stat",
            "expert_distribution_recorder_buffer_size": 1000,
        },
    ),
    Case("b300", "--enable-eplb --moe-a2a-backend deepep", {"ep_dispatch_algorithm": "static", "ep_size": 8}),
    Case("b300", "--enable-eplb --moe-a2a-backend deepep --ep-dispatch-algorithm lp", {"ep_dispatch_algorithm": "lp"}),
    Case("b300", "--expert-distribution-recorder-buffer-size 10", {"expert_distribution_recorder_buffer_size": 10}),
    Case("b300", "--elastic-ep-backend mooncake --enable-eplb --ep-size 8", {"eplb_algorithm": "elasticity_aware"}),
    Case(
        "b300",
        f"{SCALE} --attn-dp-size 8 --enable-dp-lm-head --moe-a2a-backend nixl",
        {"elastic_ep_initial_size": 8, "ep_size": 8, "enable_dp_attention_local_control_broadcast": True},
    ),
]

REFUSED_LAYOUTS = refusals(
    ("b300", "--attn-dp-size 0", "ValueError: --attn-dp-size must be positive (got 0)."),
    (
        "b300",
        "--attn-dp-size 2 --dp-size 2",
        "ValueError: --dp-size 2 with --attn-dp-size 2: data-parallel replicas combined with "
        "attention data parallelism are not supported.",
    ),
    ("b300", "--attn-dp-size 3", "AssertionError: "),
    (
        "b300",
        "--attn-dp-size 8 --enable-tp-lm-head-all-to-all --enable-dp-lm-head",
        "AssertionError: --enable-tp-lm-head-all-to-all uses a TP-sharded LM head and is "
        "incompatible with --enable-dp-lm-head.",
    ),
    (
        "b300",
        "--attn-dp-size 4 --enable-tp-lm-head-all-to-all",
        "AssertionError: --enable-tp-lm-head-all-to-all currently requires tp_size == attn_dp_size, "
        "got tp_size=8, attn_dp_size=4.",
    ),
    (
        "b300",
        "--enable-tp-lm-head-all-to-all",
        "AssertionError: --enable-tp-lm-head-all-to-all requires attention DP (--attn-dp-size).",
    ),
    ("b300", "--dwdp-size 4", "AssertionError: dwdp_size (4) must equal tp_size (8)"),
    (
        "b300",
        "--dwdp-size 8 --disaggregation-mode decode",
        "AssertionError: DWDP requires --disaggregation-mode null or prefill",
    ),
    (
        "b300",
        "--dwdp-size 8 --enable-eplb",
        "AssertionError: EPLB dynamic migration conflicts with static DWDP partitioning",
    ),
    ("b300", "--dwdp-size 8 --pp-size 2", "AssertionError: DWDP requires pp_size == 1"),
    (
        "b300",
        "--dwdp-size 8 --speculative-algorithm EAGLE",
        "AssertionError: DWDP does not support speculative decoding (MTP/draft workers)",
    ),
    (
        "b300",
        "--dwdp-size 8 --enable-two-batch-overlap",
        "AssertionError: DWDP's prefetch event protocol does not support two-batch overlap",
    ),
)

REFUSED_CONTEXTS = refusals(
    (
        "b300",
        "--dcp-size 0",
        "ValueError: Decode context parallel size (--dcp-size / --decode-context-parallel-size) must "
        "be >= 1, but got dcp_size=0.",
    ),
    (
        "b300",
        "--dcp-size 2 --enable-prefill-cp --cp-strategy zigzag",
        "ValueError: --dcp-size > 1 does not support --enable-prefill-cp.",
    ),
    (
        "b300",
        "--dcp-comm-backend a2a",
        "ValueError: --dcp-comm-backend a2a only affects the decode context-parallel attention "
        "reduction and therefore requires --dcp-size / --decode-context-parallel-size > 1, but got "
        "dcp_size=1.",
    ),
    (
        "b300",
        "--dcp-comm-backend fi_a2a",
        "ValueError: --dcp-comm-backend fi_a2a only affects the decode context-parallel attention "
        "reduction and therefore requires --dcp-size / --decode-context-parallel-size > 1, but got "
        "dcp_size=1.",
    ),
    (
        "b300",
        "--dcp-size 2 --dcp-comm-backend ag_rs --dcp-replicate-q-proj",
        "ValueError: --dcp-replicate-q-proj only applies to the a2a/fi_a2a DCP communication backend "
        "(it removes the head-dim Q all-gather); got --dcp-comm-backend=ag_rs.",
    ),
    ("b300", "--dcp-replicate-q-proj", "ValueError: --dcp-replicate-q-proj requires --dcp-size > 1."),
    (
        "mi355x",
        "--dcp-size 8 --dcp-comm-backend fi_a2a",
        "ValueError: --dcp-comm-backend fi_a2a delegates the exchange to FlashInfer's MNNVL "
        "All-to-All kernel, which requires Blackwell and a DCP group within one MNNVL domain. Use "
        "'a2a' or 'ag_rs' elsewhere, or leave the flag unset to resolve it.",
    ),
    ("b300", "--attn-cp-size 3", "AssertionError: tp_size must be divisible by attn_cp_size"),
    (
        "b300",
        "--attn-cp-size 8 --enable-prefill-cp",
        "ValueError: --cp-strategy must be set when --enable-prefill-cp is enabled.",
    ),
    (
        "b300",
        "--attn-cp-size 4 --attn-dp-size 4",
        "AssertionError: tp_size must be divisible by attn_dp_size * attn_cp_size",
    ),
    ("b300", "--moe-dp-size 2", "AssertionError: attn_cp_size != moe_dp_size is only supported when moe_dp_size == 1"),
    ("b300", "--moe-dp-size 3", "AssertionError: tp_size must be divisible by moe_dp_size"),
    (
        "b300",
        "--moe-dp-size 2 --ep-size 8",
        "AssertionError: ep_size * moe_dp_size must be less than or equal to tp_size",
    ),
    ("b300", "--moe-dp-size 2 --ep-size 2", "AssertionError: ep_size * moe_dp_size must be equal to tp_size"),
    (
        "b300",
        "--moe-dp-size 2 --attn-cp-size 2 --pp-size 2",
        "AssertionError: PP is not supported with context parallelism",
    ),
    (
        "b300",
        "--attn-cp-size 2 --enable-aiter-allreduce-fusion",
        "AssertionError: Aiter allreduce fusion is not supported with context parallelism",
    ),
    (
        "b300",
        "--moe-dp-size 2 --attn-cp-size 4",
        "AssertionError: attn_cp_size != moe_dp_size is only supported when moe_dp_size == 1",
    ),
    (
        "mi355x",
        "--attn-cp-size 8 --enable-prefill-cp --cp-strategy zigzag",
        "ValueError: Prefill CP on HIP is only supported for DeepseekV4ForCausalLM, got "
        "'KimiK3ForConditionalGeneration'.",
    ),
    ("b300", f"{NEMOTRON} --attn-cp-size 2", "ValueError: Nemotron-H does not support --attn-cp-size > 1"),
    (
        "b300",
        f"{GLM} --attn-cp-size 4 --enable-prefill-cp --cp-strategy interleave --disable-radix-cache",
        "ValueError: CP-TP group sharing requires --attn-cp-size == --tp-size, got attn_cp_size=4, tp_size=8.",
    ),
    (
        "b300",
        f"{GLM} --attn-cp-size 8 --enable-prefill-cp --cp-strategy zigzag --disable-radix-cache",
        "ValueError: CP-TP group sharing requires --cp-strategy interleave.",
    ),
    (
        "b300",
        f"{GLM} {CONTEXT} --enable-mixed-chunk --disable-radix-cache",
        "ValueError: --enable-mixed-chunk is not supported with CP-TP group sharing.",
    ),
    (
        "b300",
        f"{GLM} {CONTEXT} --disaggregation-mode prefill --disable-radix-cache",
        "ValueError: --speculative-algorithm != DFLASH is not supported with CP-TP group sharing.",
    ),
    (
        "b300",
        f"{GLM} {CONTEXT} --speculative-algorithm EAGLE3 --speculative-draft-model-path "
        "RadixArk/Kimi-K3-DSpark --disable-radix-cache",
        "ValueError: CP/TP group sharing only supports DFLASH or native MTP with top-k 1.",
    ),
    (
        "b300",
        f"{GLM} {CONTEXT} --moe-dp-size 2 --disable-radix-cache",
        "ValueError: --moe-dp-size > 1 is not supported with CP-TP group sharing.",
    ),
    (
        "b300",
        f"{GLM} --tp-size 6 --attn-cp-size 6 --enable-prefill-cp --cp-strategy interleave --disable-radix-cache",
        "ValueError: num_heads=64 must be divisible by --tp-size=6.",
    ),
    (
        "b300",
        f"{GLM} --disable-radix-cache {CONTEXT} --disaggregation-mode prefill --disaggregation-transfer-backend nixl",
        "ValueError: --disaggregation-transfer-backend != mooncake is not supported with CP-TP group sharing.",
    ),
    (
        "b300",
        f"{GLM} --disable-radix-cache {CONTEXT} --speculative-algorithm NEXTN --speculative-eagle-topk 2",
        "ValueError: CP/TP group sharing only supports DFLASH or native MTP with top-k 1.",
    ),
)

REFUSED_SHARDING = refusals(
    (
        "b300",
        "--enable-kv-cache-sharding",
        "ValueError: --enable-kv-cache-sharding is only supported on PD prefill workers: a rank's "
        "pool holds only its stripe of every cached page, which is incompatible with local decode.",
    ),
    (
        "b300",
        f"{SHARDED} --chunked-prefill-size -1",
        "ValueError: --enable-kv-cache-sharding requires chunked prefill (--chunked-prefill-size > 0).",
    ),
    (
        "b300",
        f"{SHARDED} --attn-dp-size 2",
        "ValueError: --enable-kv-cache-sharding for MLA models without prefill CP shards across "
        "attention-TP and requires plain TP attention; set --attn-dp-size=1.",
    ),
    (
        "b300",
        f"{SHARDED} --dcp-size 2",
        "ValueError: --enable-kv-cache-sharding and decode context parallelism (--dcp-size) are "
        "mutually exclusive users of the widened allocator index space.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-hierarchical-cache --hicache-storage-backend file",
        "ValueError: --enable-kv-cache-sharding supports HiCache host offload but not "
        "--hicache-storage-backend yet: the storage path reads and writes whole pages per rank, not "
        "each rank's own stripe.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-unified-memory",
        "ValueError: --enable-kv-cache-sharding does not support --enable-unified-memory: the "
        "unified pool uses a different virtual-id allocator and layout.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-flexkv",
        "ValueError: --enable-kv-cache-sharding does not support --enable-flexkv: FlexKV load-back "
        "allocates through the stock flat allocator API.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-lmcache",
        "ValueError: --enable-kv-cache-sharding does not support --enable-lmcache.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-streaming-session",
        "ValueError: --enable-kv-cache-sharding does not support streaming sessions: their virtual "
        "nodes do not carry KV-shard rotation metadata.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-session-radix-cache",
        "ValueError: --enable-kv-cache-sharding does not support session radix cache yet.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-two-batch-overlap",
        "ValueError: --enable-kv-cache-sharding does not support --enable-two-batch-overlap: the "
        "sharded pool's per-batch gather plan is a process-wide singleton, but TBO rebuilds "
        "attention metadata multiple times per extend forward and clobbers the plan.",
    ),
    (
        "b300",
        f"{SHARDED} --pp-size 2 --enable-dynamic-chunking",
        "ValueError: --enable-kv-cache-sharding does not support dynamic chunk sizing with pipeline "
        "parallelism: profiling and predicted chunks can exceed the fixed sharded scratch capacity. "
        "Disable --enable-dynamic-chunking.",
    ),
    (
        "b300",
        f"{SHARDED} --disaggregation-transfer-backend mori",
        "ValueError: --enable-kv-cache-sharding currently only supports the mooncake and nixl "
        "transfer backends: both route sends through CommonKVSender._prepare_send_indices and pair "
        "destinations by fancy index. Got --disaggregation-transfer-backend 'mori'.",
    ),
    (
        "b300",
        f"{SHARDED} --disable-chunked-prefix-cache",
        "ValueError: KV sharding with trtllm_mla requires chunked prefix caching.",
    ),
    (
        "b300",
        f"{SHARDED} --attn-cp-size 2",
        "ValueError: KV sharding with trtllm_mla only supports plain-TP MLA (attn_cp_size must be 1).",
    ),
    (
        "b300",
        f"{SHARDED} --prefill-attention-backend flashinfer",
        "ValueError: --enable-kv-cache-sharding currently requires the fa3 prefill attention "
        "backend, or trtllm_mla for plain-TP MLA; got 'flashinfer'.",
    ),
    (
        "b300",
        f"{SHARDED} --enable-unified-cache-external-linker",
        "ValueError: --enable-kv-cache-sharding does not support "
        "--enable-unified-cache-external-linker: load-back allocates through the flat allocator API.",
    ),
    (
        "h200",
        f"{SHARDED}",
        "ValueError: --enable-kv-cache-sharding requires a real page size (--page-size 64 "
        "recommended): the physical page is the P/D transfer descriptor and gather-copy unit; "
        "page_size=1 degenerates both into per-token operations.",
    ),
    (
        "b300",
        f"--tp-size 1 {SHARDED}",
        "ValueError: --enable-kv-cache-sharding for MLA models without prefill CP shards across "
        "attention-TP ranks and needs tp_size > 1.",
    ),
    (
        "b300",
        f"DSPARK --speculative-num-draft-tokens 8 {SHARDED}",
        "ValueError: KV sharding supports speculative decoding only for GLM DSA single-layer NextN "
        "MTP with EAGLE and topk=1.",
    ),
    (
        "b300",
        f"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=rust {SHARDED}",
        "ValueError: --enable-kv-cache-sharding requires the Python UnifiedTreeCore: "
        "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND='rust' is not supported for sharded KV.",
    ),
    (
        "b300",
        f"SGLANG_DISAGG_STAGING_BUFFER=1 {SHARDED}",
        "ValueError: --enable-kv-cache-sharding is incompatible with SGLANG_DISAGG_STAGING_BUFFER "
        "(the staging path assumes contiguous send slices).",
    ),
    (
        "h200",
        f"{LLAMA} {SHARDED} --page-size 64",
        "ValueError: --enable-kv-cache-sharding for GQA models shards across attention-CP ranks and "
        "requires --enable-prefill-cp with attn_cp_size > 1.",
    ),
    (
        "b300",
        f"{GLM} {SHARDED} --disable-radix-cache",
        "ValueError: DSA KV sharding requires CUDA interleave prefill CP > 1 and PP1.",
    ),
)

REFUSED_EXPERTS = refusals(
    (
        "b300",
        "--shared-experts-tp-size 2",
        "ValueError: --shared-experts-tp-size requires an expert-parallel all-to-all backend "
        "(deepep, megamoe, mooncake, ascend_fuseep or mori).",
    ),
    (
        "b300",
        "--shared-experts-tp-size 3",
        "ValueError: --shared-experts-tp-size (3) must be a positive divisor of attention TP size (8).",
    ),
    (
        "b300",
        "--shared-experts-tp-size 4 --moe-a2a-backend deepep --attn-dp-size 4",
        "ValueError: --shared-experts-tp-size (4) must be a positive divisor of attention TP size (2).",
    ),
    (
        "b300",
        f"{DEEPSEEK} --shared-experts-tp-size 2",
        "ValueError: --shared-experts-tp-size is only supported for Kimi-K3.",
    ),
    ("b300", "--enable-eplb", "AssertionError: "),
    (
        "b300",
        "--enable-eplb --ep-size 8 --ep-dispatch-algorithm static",
        "ValueError: --ep-dispatch-algorithm static picks a different physical replica per rank, "
        "which only holds up when an a2a backend routes each token to a single rank. Use "
        "--ep-dispatch-algorithm dynamic with --moe-a2a-backend none.",
    ),
    (
        "b300",
        "--elastic-ep-backend mooncake --enable-eplb --ep-size 8 --eplb-algorithm deepseek",
        "AssertionError: Elastic EP requires eplb_algorithm to be set to 'auto' or 'elasticity_aware(_hierarchical)'.",
    ),
    (
        "b300",
        "--elastic-ep-backend mooncake --pp-size 2",
        "AssertionError: PP size should be set to 1 under elastic EP",
    ),
    (
        "b300",
        "--elastic-ep-join-mode scale",
        "AssertionError: --elastic-ep-join-mode requires --elastic-ep-backend to be set.",
    ),
    (
        "b300",
        "--elastic-ep-backend mooncake --elastic-ep-join-mode scale",
        "AssertionError: Elastic EP scale-up requires one joining TP group at --node-rank 1 (got 0).",
    ),
    (
        "b300",
        f"--elastic-ep-backend mooncake {JOIN} --nnodes 2",
        "AssertionError: Elastic EP scale joiners require --elastic-ep-join-rank-offset set to the "
        "current effective EP size.",
    ),
    ("b300", "--max-ep-size 16", "AssertionError: --max-ep-size requires --elastic-ep-backend to be set."),
    (
        "b300",
        "--elastic-ep-backend mooncake --max-ep-size 0",
        "AssertionError: --max-ep-size must be a positive integer.",
    ),
    (
        "b300",
        f"{SCALE}",
        "AssertionError: Elastic EP scale-up with attention TP greater than one requires "
        "--moe-dense-tp-size 1 (got moe_dense_tp_size=None).",
    ),
    (
        "b300",
        f"{SCALE} --attn-dp-size 8",
        "AssertionError: Elastic EP scale-up requires --enable-dp-lm-head so output projection does "
        "not depend on the joining group's TP size.",
    ),
    (
        "b300",
        f"{SCALE} --attn-dp-size 8 --enable-dp-lm-head",
        "AssertionError: Elastic EP scale-up requires ep_size == tp_size (got ep_size=1, tp_size=8); "
        "physical EP membership must coincide with the launch-time TP span.",
    ),
    (
        "b300",
        "--elastic-ep-backend mooncake --max-ep-size 13 --attn-dp-size 4",
        "AssertionError: EP size 13 must be divisible by attention replica size 2.",
    ),
    (
        "b300",
        f"{SCALE} --attn-dp-size 4 --moe-dense-tp-size 1",
        "AssertionError: Elastic EP scale-up requires --enable-dp-lm-head so output projection does "
        "not depend on the joining group's TP size.",
    ),
    (
        "b300",
        "--elastic-ep-backend mooncake --elastic-ep-initial-size 8",
        "AssertionError: --elastic-ep-initial-size is only valid for an Elastic EP deployment with "
        "--max-ep-size larger than its local TP size.",
    ),
    (
        "b300",
        f"{SCALE} --elastic-ep-initial-size 4 --attn-dp-size 8",
        "AssertionError: The primary --elastic-ep-initial-size must equal its launch-time TP size (8).",
    ),
    (
        "b300",
        f"{SCALE} --attn-dp-size 8 --tokenizer-worker-num 2",
        "AssertionError: Elastic EP runtime scale-up currently requires --tokenizer-worker-num 1.",
    ),
    (
        "b300",
        f"{SCALE} --attn-dp-size 8 --load-balance-method total_tokens",
        "AssertionError: Elastic EP scale-up requires --load-balance-method round_robin; load-aware "
        "methods require global-rank load snapshots after scale (got total_tokens).",
    ),
    (
        "b300",
        "--elastic-ep-join-rank-offset 4",
        "AssertionError: --elastic-ep-join-rank-offset is only valid with --elastic-ep-join-mode scale.",
    ),
    (
        "b300",
        f"--elastic-ep-backend mooncake {JOIN} --elastic-ep-join-rank-offset 12 --max-ep-size 16 "
        "--attn-dp-size 8 --elastic-ep-initial-size 8",
        "AssertionError: Elastic EP joining group exceeds --max-ep-size (join_target=20, max_ep_size=16).",
    ),
    (
        "b300",
        f"--elastic-ep-backend mooncake {JOIN} --elastic-ep-join-rank-offset 8 --max-ep-size 16 --attn-dp-size 8",
        "AssertionError: Elastic EP scale joiners require --elastic-ep-initial-size set "
        "to the primary deployment's launch-time EP size.",
    ),
    (
        "b300",
        "--enable-layernorm-sp",
        "ValueError: --enable-layernorm-sp is only supported for "
        "['MuseSparkForConditionalGeneration', 'Qwen3ForCausalLM']; got "
        "KimiK3ForConditionalGeneration.",
    ),
    (
        "b300",
        "--enable-megamoe-for-layernorm-sp",
        "ValueError: --enable-megamoe-for-layernorm-sp requires --enable-layernorm-sp.",
    ),
    (
        "b300",
        "--enable-layernorm-sp --enable-megamoe-for-layernorm-sp",
        "ValueError: --enable-megamoe-for-layernorm-sp supports only Muse Spark.",
    ),
)


@pytest.mark.parametrize("case", **named([*LAYOUTS]))
def test_resolved_as_the_engine_does(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named([*REFUSED_LAYOUTS, *REFUSED_CONTEXTS, *REFUSED_SHARDING, *REFUSED_EXPERTS]))
def test_refused_in_the_engine_s_words(case: Case) -> None:
    check(case)


ENVIRONMENTS = [
    ("", "NCCL_GRAPH_REGISTER", "0"),
    ("NCCL_GRAPH_REGISTER=1", "NCCL_GRAPH_REGISTER", "1"),
    ("--disable-cuda-graph", "NCCL_GRAPH_REGISTER", None),
    ("--tp-size 1", "NCCL_GRAPH_REGISTER", None),
    ("--dwdp-size 8", "SGLANG_SCHEDULER_SKIP_ALL_GATHER", "True"),
    (SHARDED, "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "python"),
]


@pytest.mark.parametrize(("flags", "variable", "value"), ENVIRONMENTS)
def test_what_workers_find_in_their_environment(flags: str, variable: str, value: str | None) -> None:
    assert outcome(Case("b300", flags)).env.get(variable) == value


def test_a_rewrite_says_what_was_and_why() -> None:
    rewrites = outcome(Case("b300", "--attn-dp-size 8")).rewrites
    chunk = [rewrite for rewrite in rewrites if rewrite.field == "chunked_prefill_size"][-1]
    assert (chunk.before, chunk.after, chunk.reason) == (16384, 2048, "Shared by 8 attention-DP ranks.")


def test_a_division_by_zero_is_the_engine_s_own() -> None:
    found = outcome(Case("b300", "--attn-cp-size 0 --shared-experts-tp-size 2"))
    assert found.error == "ZeroDivisionError: integer division or modulo by zero"
