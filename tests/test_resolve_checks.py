"""The engine's final check of resolved arguments, and lines just this side of a refusal."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, outcome, refusals, table

HISPARSE = "--model-path zai-org/GLM-5.3-Flash --tp-size 8 --enable-hisparse"
EAGLE = "--speculative-algorithm EAGLE --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
DRAFT = "--speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
PIPELINE = "--tp-size 1 --pp-size 8"

LORA = table(
    "enable_lora lora_paths lora_target_modules enable_lora_overlap_loading",
    (
        "b300",
        '--lora-paths a=x y \'{"lora_name": "n", "lora_path": "p", "pinned": true}\'',
        True,
        [
            {"lora_id": "434b579d82235116b6ff1ef6e3b8df84", "lora_name": "a", "lora_path": "x", "pinned": False},
            {"lora_id": "0fadeb4202a2571c83148d934e95de47", "lora_name": "y", "lora_path": "y", "pinned": False},
            {"lora_id": "b86a902d7c455084826d3270280b5cd5", "lora_name": "n", "lora_path": "p", "pinned": True},
        ],
        None,
        False,
    ),
    (
        "b300",
        "--enable-lora --max-lora-rank 8 --lora-target-modules q_proj o_proj q_proj",
        True,
        [],
        ["o_proj", "q_proj"],
        False,
    ),
)
PIPELINES = table(
    "disable_overlap_schedule",
    ("b300", f"{PIPELINE} --disaggregation-mode prefill {EAGLE}", True),
    ("b300", f"SGLANG_ENABLE_PP_SPEC=1 {PIPELINE} {EAGLE}", True),
)
NEAR_A_REFUSAL = table(
    "",
    ("b300", "--lora-paths a=x DSPARK"),
    ("b300", "--enable-pdmux --chunked-prefill-size -1 --disable-overlap-schedule"),
    ("b300", "--prompt-tokens-buckets tse 1000 2 8 --generation-tokens-buckets custom 10 50 100"),
    ("b300", "--enable-priority-scheduling --retraction-policy priority"),
    ("b300", '--enable-watermark --watermark-config \'{"key": "0xFF"}\''),
    ("b300", '--load-publish-endpoint auto --kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557"}\''),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://[::]:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557"}\''
        ),
    ),
    ("b300", "--disaggregation-mode decode --disaggregation-transfer-backend nixl --chunked-prefill-size 1000"),
    ("b300", f"{HISPARSE} --disable-radix-cache"),
    ("mi355x", f"{HISPARSE} --disable-radix-cache"),
    ("b300", "--disable-priority-preemption --default-priority-value 3"),
    (
        "b300",
        (
            '--load-publish-endpoint auto --kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557", '
            '"replay_endpoint": "tcp://*:5558"}\''
        ),
    ),
)
NODES_AND_GPUS_ARE_REFUSED = refusals(
    ("b300", "--nnodes 3 --dist-init-addr 1.1.1.1:1", "AssertionError: tp_size must be divisible by number of nodes"),
    (
        "b300",
        "--dp-size 2 --nnodes 2 --dist-init-addr 1.1.1.1:1",
        (
            "AssertionError: multi-node data-parallel replicas are not supported; use attention DP "
            "(--attn-dp-size) across nodes"
        ),
    ),
    ("b300", "--base-gpu-id -1", "AssertionError: base_gpu_id must be non-negative"),
    ("b300", "--gpu-id-step 0", "AssertionError: gpu_id_step must be positive"),
    ("b300", "--moe-dense-tp-size 3", "AssertionError: moe_dense_tp_size only supports None, 1, or tp_size currently"),
    (
        "b300",
        "--pp-max-micro-batch-size 0",
        "AssertionError: pp_max_micro_batch_size must be a positive integer or None (for auto-compute). Got: 0",
    ),
)
PIPELINES_ARE_REFUSED = refusals(
    (
        "b300",
        f"SGLANG_ENABLE_PP_SPEC=1 {PIPELINE} --disaggregation-mode prefill DSPARK",
        "AssertionError: SGLANG_ENABLE_PP_SPEC does not support DSPARK PD prefill",
    ),
    (
        "b300",
        f"{PIPELINE} --speculative-algorithm EAGLE3 {DRAFT}",
        "AssertionError: Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding",
    ),
    (
        "b300",
        f"{PIPELINE} {EAGLE}",
        (
            "AssertionError: PP + speculative decoding (MTP) is only supported on prefill nodes "
            "(disaggregation-mode=prefill)"
        ),
    ),
    (
        "b300",
        f"SGLANG_ENABLE_PP_SPEC=1 {PIPELINE} --disaggregation-mode prefill {EAGLE}",
        "AssertionError: SGLANG_ENABLE_PP_SPEC is not compatible with --disaggregation-mode",
    ),
    (
        "b300",
        f"SGLANG_ENABLE_PP_SPEC=1 {PIPELINE} {EAGLE} --speculative-adaptive",
        "AssertionError: SGLANG_ENABLE_PP_SPEC is not compatible with --speculative-adaptive",
    ),
    (
        "b300",
        f"SGLANG_ENABLE_PP_SPEC=1 --tp-size 4 --pp-size 2 --attn-dp-size 2 {EAGLE}",
        "AssertionError: SGLANG_ENABLE_PP_SPEC is not compatible with attention DP (--attn-dp-size)",
    ),
    (
        "b300",
        f"{PIPELINE} --min-free-slots-delay 2",
        (
            "AssertionError: --min-free-slots-delay is not supported with pipeline parallelism: allocatable "
            "slots per microbatch are bounded by pp-max-micro-batch-size, so the threshold may never be reached"
        ),
    ),
)
NAMES_AND_GRAPHS_ARE_REFUSED = refusals(
    (
        "b300",
        "--served-model-name k3:fast",
        (
            "AssertionError: served_model_name cannot contain a colon (':') character. The colon is reserved "
            "for the 'model:adapter' syntax used in LoRA adapter specification. Invalid value: 'k3:fast'"
        ),
    ),
    (
        "b300",
        "--disable-cuda-graph-padding --enable-torch-compile",
        (
            "AssertionError: --disable-cuda-graph-padding is incompatible with --enable-torch-compile. With "
            "padding disabled, every distinct batch size gets its own torch.compile + Triton autotune cycle "
            "(O(max_batch_size) compilations) instead of the small fixed set of padded bucket sizes, causing "
            "engine initialisation to stall for many minutes. Remove --disable-cuda-graph-padding or "
            "--enable-torch-compile."
        ),
    ),
)
ADAPTERS_ARE_REFUSED = refusals(
    ("b300", "--max-loras-per-batch 0", "AssertionError: max_loras_per_batch must be positive"),
    (
        "b300",
        "--enable-lora",
        (
            "AssertionError: When no initial --lora-paths is provided, you need to specify both "
            "--max-lora-rank and --lora-target-modules for LoRA initialization."
        ),
    ),
    (
        "b300",
        "--enable-lora --max-lora-rank 8 --lora-target-modules all q_proj",
        "AssertionError: If 'all' is specified in --lora-target-modules, it should be the only module specified.",
    ),
    (
        "b300",
        "--lora-paths a=x --max-loaded-loras 4",
        (
            "AssertionError: max_loaded_loras should be greater than or equal to max_loras_per_batch. "
            "max_loaded_loras=4, max_loras_per_batch=8"
        ),
    ),
    (
        "b300",
        "--lora-paths a=x b=y --max-loaded-loras 1 --max-loras-per-batch 1",
        (
            "AssertionError: The number of LoRA paths should not exceed max_loaded_loras. max_loaded_loras=1, "
            "lora_paths=2"
        ),
    ),
    (
        "b300",
        "--lora-paths a=x --enable-lora-overlap-loading",
        (
            "AssertionError: Enabling LoRA overlap loading requires pinning LoRA adapter weights in CPU "
            "memory, so --max-loaded-loras must be less than or equal to double --max-loras-per-batch: 16"
        ),
    ),
    (
        "b300",
        "--lora-paths a=x --lora-drain-wait-threshold -1",
        "AssertionError: --lora-drain-wait-threshold must be non-negative.",
    ),
)
LORA_MODES_ARE_REFUSED = refusals(
    (
        "b300",
        "--lora-paths a=x --attn-dp-size 2 --lora-backend triton_v2",
        "ValueError: --lora-backend triton_v2 does not yet support DP-attention with --attn-dp-size > 1",
    ),
    (
        "mi355x",
        "--lora-paths a=x --lora-backend triton_v2",
        "ValueError: --lora-backend triton_v2 does not yet support ROCm",
    ),
    (
        "b300",
        f"--lora-paths a=x --speculative-algorithm STANDALONE {DRAFT}",
        (
            "ValueError: LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK "
            "speculative decoding, not STANDALONE."
        ),
    ),
    (
        "b300",
        "--lora-paths a=x --speculative-algorithm FROZEN_KV_MTP",
        (
            "ValueError: LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK "
            "speculative decoding, not FROZEN_KV_MTP (NEXTN/EAGLE with a Gemma4 assistant draft is "
            "automatically promoted to FROZEN_KV_MTP, which does not support LoRA)."
        ),
    ),
    (
        "b300",
        "SGLANG_RAGGED_VERIFY_MODE=compact --lora-paths a=x DSPARK",
        (
            "ValueError: LoRA with EAGLE/NEXTN/EAGLE3 speculative decoding does not support "
            "SGLANG_RAGGED_VERIFY_MODE='compact': the per-request verify lengths it schedules break the "
            "uniform-width LoRA segment layout."
        ),
    ),
    (
        "b300",
        f"--lora-paths a=x {EAGLE} --speculative-adaptive",
        (
            "ValueError: LoRA with EAGLE/NEXTN/EAGLE3 speculative decoding does not support "
            "--speculative-adaptive: the draft is built from a static ServerArgs snapshot, and the "
            "runtime-state swap does not rebuild LoRA cuda-graph metadata."
        ),
    ),
    (
        "b300",
        f"SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1 --lora-paths a=x {EAGLE}",
        (
            "ValueError: LoRA with EAGLE/NEXTN/EAGLE3 speculative decoding does not support "
            "SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1: LoRA batch preparation would run on the plan stream, "
            "unordered against in-flight forwards."
        ),
    ),
)
LORA_RUNNERS_ARE_REFUSED = refusals(
    (
        "b300",
        "DSPARK --speculative-moe-runner-backend lora_triton",
        (
            "ValueError: --speculative-moe-runner-backend lora_triton is not supported: the LoRA MoE runner "
            "serves adapter traffic on the target model"
        ),
    ),
    (
        "b300",
        "--moe-runner-backend lora_triton",
        "ValueError: --moe-runner-backend lora_triton requires --enable-lora (or --lora-paths)",
    ),
    (
        "b300",
        "--lora-paths a=x --moe-runner-backend lora_triton",
        "ValueError: --moe-runner-backend lora_triton requires --lora-backend triton_v2",
    ),
    (
        "b300",
        "--lora-paths a=x --lora-backend triton_v2 --moe-runner-backend lora_triton --moe-a2a-backend deepep",
        "ValueError: --moe-runner-backend lora_triton requires Standard dispatch, got --moe-a2a-backend deepep",
    ),
    (
        "b300",
        "--lora-paths a=x --lora-backend triton_v2 --moe-runner-backend lora_triton --init-expert-location x",
        (
            "ValueError: --moe-runner-backend lora_triton currently requires trivial expert placement without "
            "EPLB or redundant experts"
        ),
    ),
    (
        "b300",
        "--lora-paths a=x --attn-dp-size 2 --lora-backend triton_v2 --moe-runner-backend lora_triton",
        "ValueError: --moe-runner-backend lora_triton does not yet support DP-attention with --attn-dp-size > 1",
    ),
)
CHUNKS_ARE_REFUSED = refusals(
    (
        "b300",
        "--enable-mixed-chunk --speculative-algorithm NONE",
        "AssertionError: enable_mixed_chunk is not supported with speculative_algorithm=NONE",
    ),
    ("b300", "--chunked-prefill-size 1000", "AssertionError: chunked_prefill_size must be divisible by page_size"),
)
MULTIPLEXING_IS_REFUSED = refusals(
    (
        "b300",
        f"{PIPELINE} --enable-pdmux",
        "AssertionError: PD-Multiplexing is only supported with pipeline parallelism disabled (pp_size=1).",
    ),
    ("b300", "--enable-pdmux", "AssertionError: PD-Multiplexing is not compatible with chunked prefill."),
    (
        "b300",
        "--enable-pdmux --chunked-prefill-size -1 --disaggregation-mode prefill",
        "AssertionError: PD-Multiplexing is not compatible with disaggregation mode.",
    ),
    (
        "b300",
        "--enable-pdmux --chunked-prefill-size -1",
        "AssertionError: PD-Multiplexing is not compatible with overlap schedule.",
    ),
)
WORKERS_ARE_REFUSED = refusals(
    ("b300", "--tokenizer-worker-num 0", "AssertionError: Tokenizer worker num must >= 1"),
    ("b300", "--detokenizer-worker-num 0", "AssertionError: Detokenizer worker num must >= 1"),
    ("b300", "--mm-processor-worker-num -1", "AssertionError: Multimodal processor worker num must >= 0"),
    ("b300", "--mm-io-worker-num -1", "AssertionError: Multimodal I/O worker num must >= 0"),
)
HISPARSE_IS_REFUSED = refusals(
    (
        "b300",
        f"{HISPARSE} --disable-radix-cache --enable-mixed-chunk",
        "ValueError: --enable-hisparse does not support --enable-mixed-chunk yet.",
    ),
    (
        "b300",
        f"{HISPARSE} --disable-radix-cache {EAGLE} --speculative-adaptive",
        (
            "ValueError: HiSparse speculative decoding uses statically sized swap state; "
            "--speculative-adaptive is not supported."
        ),
    ),
    (
        "b300",
        f"{HISPARSE} --disable-radix-cache --dsa-decode-backend trtllm",
        (
            "ValueError: HiSparse supports DSA decode backend(s) ['flashinfer_sparse_mla', 'flashmla_kv'] on "
            "this platform with --kv-cache-dtype=fp8_e4m3, but got --dsa-decode-backend=trtllm. Please use one "
            "of ['flashinfer_sparse_mla', 'flashmla_kv'], or omit the option to let SGLang pick a backend for "
            "this platform."
        ),
    ),
    (
        "mi355x",
        f"{HISPARSE} --disable-radix-cache --dsa-prefill-backend flashmla_sparse",
        (
            "ValueError: HiSparse supports DSA prefill backend(s) ['aiter', 'tilelang', 'triton'] on this "
            "platform with --kv-cache-dtype=bfloat16, but got --dsa-prefill-backend=flashmla_sparse. Please "
            "use one of ['aiter', 'tilelang', 'triton'], or omit the option to let SGLang pick a backend for "
            "this platform."
        ),
    ),
)
BUCKETS_ARE_REFUSED = refusals(
    (
        "b300",
        "--prompt-tokens-buckets nope",
        (
            "AssertionError: Unsupported --prompt-tokens-buckets rule type: 'nope'. Must be one of: 'tse', "
            "'default', 'custom'"
        ),
    ),
    (
        "b300",
        "--prompt-tokens-buckets default 1",
        "AssertionError: --prompt-tokens-buckets default rule should only have one parameter: ['default'], got 2",
    ),
    (
        "b300",
        "--prompt-tokens-buckets tse 1",
        (
            "AssertionError: --prompt-tokens-buckets TSE rule requires exactly 4 parameters: ['tse', middle, "
            "base, count], got 2"
        ),
    ),
    (
        "b300",
        "--prompt-tokens-buckets tse a 2 3",
        (
            "AssertionError: --prompt-tokens-buckets TSE rule parameters must be: ['tse', <float:middle>, "
            "<float:base>, <int:count>]"
        ),
    ),
    (
        "b300",
        "--prompt-tokens-buckets tse 1 1 3",
        "AssertionError: --prompt-tokens-buckets TSE base must be larger than 1, got: 1.0",
    ),
    (
        "b300",
        "--prompt-tokens-buckets tse 1 2 0",
        "AssertionError: --prompt-tokens-buckets TSE count must be positive, got: 0",
    ),
    (
        "b300",
        "--prompt-tokens-buckets tse -1 2 1",
        "AssertionError: --prompt-tokens-buckets TSE middle must be positive, got: -1.0",
    ),
    (
        "b300",
        "--prompt-tokens-buckets custom",
        (
            "AssertionError: --prompt-tokens-buckets custom rule requires at least one bucket value: "
            "['custom', value1, ...]"
        ),
    ),
    (
        "b300",
        "--prompt-tokens-buckets custom x",
        "AssertionError: --prompt-tokens-buckets custom rule bucket values must be numeric",
    ),
    (
        "b300",
        "--prompt-tokens-buckets custom 1 1",
        "AssertionError: --prompt-tokens-buckets custom rule bucket values should not contain duplicates",
    ),
    (
        "b300",
        "--prompt-tokens-buckets custom -1",
        "AssertionError: --prompt-tokens-buckets custom rule bucket values should be non-negative",
    ),
)
PRIORITIES_ARE_REFUSED = refusals(
    (
        "b300",
        "--enable-priority-scheduling --schedule-policy lpm",
        (
            "AssertionError: To use priority scheduling, schedule_policy must be 'fcfs' or 'lof'. 'lpm' is not "
            "supported."
        ),
    ),
    (
        "b300",
        "--retraction-policy priority",
        "ValueError: --retraction-policy priority requires --enable-priority-scheduling",
    ),
)
MODELS_AND_LOADING_ARE_REFUSED = refusals(
    (
        "b300",
        "--enable-hisparse",
        (
            "AssertionError: --enable-hisparse is only supported for DSA (DeepSeek Sparse Attention) models "
            "(e.g., DeepSeek V3.2, GLM-5), DeepSeek V4, and MiniMax M3 now. "
        ),
    ),
    ("b300", "--model-impl mindspore", "AssertionError: MindSpore model impl is only supported on Ascend npu."),
    (
        "a3",
        "--tp-size 32 --nnodes 4 --dist-init-addr 1.1.1.1:1 --load-format instanttensor",
        "ValueError: InstantTensor requires a CUDA-compatible device (including CUDA and ROCm); got 'npu'.",
    ),
)
METRICS_ARE_REFUSED = refusals(
    (
        "b300",
        "--tokenizer-metrics-allowed-custom-labels a --tokenizer-metrics-custom-labels-header ''",
        (
            "ValueError: Please set --tokenizer-metrics-custom-labels-header when setting "
            "--tokenizer-metrics-allowed-custom-labels."
        ),
    ),
    (
        "b300",
        "--export-metrics-to-file",
        "ValueError: --export-metrics-to-file-dir is required when --export-metrics-to-file is enabled",
    ),
)
COMMUNICATION_IS_REFUSED = refusals(
    (
        "b300",
        "--enable-two-batch-overlap",
        (
            "ValueError: When enabling two batch overlap without an EP a2a backend (moe_a2a_backend='none'), "
            "attention DP (--attn-dp-size) is required (DeepSeek-V4 non-EP DP TBO path)."
        ),
    ),
    (
        "b300",
        "--tp-size 1 --enable-quant-communications",
        "ValueError: Communications quantization is only used with tp_size != 1",
    ),
    (
        "b300",
        "--enable-quant-communications",
        "ValueError: Communications quantization is only supported for NPU device",
    ),
    (
        "b300",
        "--sampling-backend intel_xpu",
        "ValueError: --sampling-backend intel_xpu requires --device xpu, got --device cuda",
    ),
    ("b300", "--grpc-port 30000", "ValueError: --grpc-port (30000) must differ from --port (30000)"),
)
HOUSEKEEPING_IS_REFUSED = refusals(
    ("b300", "--gc-threshold 1 2 3 4", "ValueError: When setting gc_threshold, it must contain 1 to 3 integers."),
    (
        "b300",
        "--kv-canary-sweep-interval 5",
        "ValueError: --kv-canary-sweep-interval requires --kv-canary in {log, raise}",
    ),
)
WATERMARKS_ARE_REFUSED = refusals(
    ("b300", "--watermark-config '{}'", "ValueError: --watermark-config requires --enable-watermark"),
    (
        "a3",
        "--tp-size 32 --nnodes 4 --dist-init-addr 1.1.1.1:1 --enable-watermark",
        "ValueError: --enable-watermark requires --device cuda, got 'npu'",
    ),
    (
        "b300",
        "--enable-watermark --disaggregation-mode prefill",
        "ValueError: --enable-watermark is not supported with PD disaggregation",
    ),
    (
        "b300",
        "--enable-watermark DSPARK",
        "ValueError: --enable-watermark supports speculative algorithms NGRAM, EAGLE, and EAGLE3, got 'DSPARK'",
    ),
    (
        "b300",
        f"--enable-watermark {EAGLE} --speculative-use-rejection-sampling",
        "ValueError: --enable-watermark is incompatible with --speculative-use-rejection-sampling",
    ),
    (
        "b300",
        "--enable-watermark --enable-custom-logit-processor",
        "ValueError: --enable-watermark is incompatible with --enable-custom-logit-processor",
    ),
    (
        "b300",
        "SGLANG_RUST_SERVER=1 --enable-watermark",
        "ValueError: --enable-watermark is not supported with SGLANG_RUST_SERVER",
    ),
    (
        "b300",
        '--enable-watermark --watermark-config \'{"key_b": "ff"}\'',
        "ValueError: watermark key_b requires a server key",
    ),
    (
        "b300",
        "--enable-watermark --watermark-config '{\"mixing_probability\": 0.3}'",
        "ValueError: watermark mixing_probability requires key_b",
    ),
    (
        "b300",
        '--enable-watermark --watermark-config \'{"key": "a", "key_b": "b", "mixing_probability": 1.0}\'',
        "ValueError: watermark mixing_probability must be strictly between 0 and 1",
    ),
    (
        "b300",
        "--enable-watermark --watermark-config '{\"max_probability\": 1.5}'",
        "ValueError: watermark max_probability must be greater than 0 and at most 1",
    ),
    (
        "b300",
        "--enable-watermark --watermark-config '{\"enforce_all\": true}'",
        "ValueError: watermark default_enabled and enforce_all require a server key",
    ),
    (
        "b300",
        f"SGLANG_ENABLE_PP_SPEC=1 {PIPELINE} --disaggregation-mode null --enable-watermark {EAGLE}",
        "ValueError: --enable-watermark is not supported with pipeline-parallel speculative decoding",
    ),
)
LOAD_RANGES_ARE_REFUSED = refusals(
    (
        "b300",
        "--load-publish-endpoint auto",
        (
            "ValueError: --load-publish-endpoint requires --kv-events-config: routers discover the load range "
            "through /server_info's kv_events block, absent without a publisher."
        ),
    ),
    (
        "b300",
        "--load-publish-endpoint auto --kv-events-config '{}'",
        (
            "ValueError: --load-publish-endpoint needs an active --kv-events-config publisher; got "
            "publisher='null' or an empty endpoint."
        ),
    ),
    (
        "b300",
        '--load-publish-endpoint auto --kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://10.0.0.1:5557"}\'',
        (
            "ValueError: --load-publish-endpoint=auto needs a bindable wildcard-host tcp:// --kv-events-config "
            "endpoint to pack after; 'tcp://10.0.0.1:5557' is not one"
        ),
    ),
    (
        "b300",
        '--load-publish-endpoint tcp://*:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": "ipc://a"}\'',
        (
            "ValueError: --load-publish-endpoint='tcp://*:6000' needs a routable tcp:// --kv-events-config "
            "endpoint: routers discover the load range through /server_info's kv_events block, absent for "
            "endpoint 'ipc://a', so the socket would be bound but never advertised"
        ),
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://10.0.0.1:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557"}\''
        ),
        (
            "ValueError: --load-publish-endpoint='tcp://10.0.0.1:6000' is not a bindable tcp:// address (a "
            "concrete host would be connected to, not bound)"
        ),
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://*:5557 --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557"}\''
        ),
        "ValueError: --load-publish-endpoint range [5557, 5558) overlaps the kv-events range [5557, 5558)",
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://*:65530 --attn-dp-size 8 --kv-events-config \'{"publisher": "zmq", '
            '"endpoint": "tcp://*:5557"}\''
        ),
        "ValueError: load port range from 65530 would run past the u16 ceiling",
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://*:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557", "replay_endpoint": "tcp://*:6000"}\''
        ),
        "ValueError: --load-publish-endpoint range [6000, 6001) overlaps the kv-events range [6000, 6001)",
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://[x]:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557"}\''
        ),
        (
            "ValueError: --load-publish-endpoint='tcp://[x]:6000' is not a bindable tcp:// address (a concrete "
            "host would be connected to, not bound)"
        ),
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://::1:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557"}\''
        ),
        (
            "ValueError: --load-publish-endpoint='tcp://::1:6000' is not a bindable tcp:// address (a concrete "
            "host would be connected to, not bound)"
        ),
    ),
    (
        "b300",
        '--load-publish-endpoint tcp://* --kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557"}\'',
        (
            "ValueError: --load-publish-endpoint='tcp://*' is not a bindable tcp:// address (a concrete host "
            "would be connected to, not bound)"
        ),
    ),
    (
        "b300",
        '--load-publish-endpoint tcp://*:0 --kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557"}\'',
        (
            "ValueError: --load-publish-endpoint='tcp://*:0' is not a bindable tcp:// address (a concrete host "
            "would be connected to, not bound)"
        ),
    ),
    (
        "b300",
        (
            '--load-publish-endpoint tcp://*:many --kv-events-config \'{"publisher": "zmq", "endpoint": '
            '"tcp://*:5557"}\''
        ),
        (
            "ValueError: --load-publish-endpoint='tcp://*:many' is not a bindable tcp:// address (a concrete "
            "host would be connected to, not bound)"
        ),
    ),
    (
        "b300",
        '--load-publish-endpoint [::]:6000 --kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557"}\'',
        (
            "ValueError: --load-publish-endpoint='[::]:6000' is not a bindable tcp:// address (a concrete host "
            "would be connected to, not bound)"
        ),
    ),
)


@pytest.mark.parametrize("case", **named(LORA))
def test_lora(case: Case) -> None:
    """Adapters switch LoRA on and get an id that is the same on every node."""
    check(case)


@pytest.mark.parametrize("case", **named(PIPELINES))
def test_pipelines(case: Case) -> None:
    """Pipelines speculate with EAGLE, as a PD prefill server or with relayed drafts."""
    check(case)


@pytest.mark.parametrize("case", **named(NEAR_A_REFUSAL))
def test_near_a_refusal(case: Case) -> None:
    """Lines just this side of a refusal pass."""
    check(case)


@pytest.mark.parametrize("case", **named(NODES_AND_GPUS_ARE_REFUSED))
def test_nodes_and_gpus_are_refused(case: Case) -> None:
    """Nodes, replicas and GPU numbers."""
    check(case)


@pytest.mark.parametrize("case", **named(PIPELINES_ARE_REFUSED))
def test_pipelines_are_refused(case: Case) -> None:
    """Drafts and delays that a pipeline cannot run."""
    check(case)


@pytest.mark.parametrize("case", **named(NAMES_AND_GRAPHS_ARE_REFUSED))
def test_names_and_graphs_are_refused(case: Case) -> None:
    """Names with colons, and compiled graphs without padding."""
    check(case)


@pytest.mark.parametrize("case", **named(ADAPTERS_ARE_REFUSED))
def test_adapters_are_refused(case: Case) -> None:
    """Numbers of adapters and what names them."""
    check(case)


@pytest.mark.parametrize("case", **named(LORA_MODES_ARE_REFUSED))
def test_lora_modes_are_refused(case: Case) -> None:
    """Adapters beside attention DP, ROCm and speculation."""
    check(case)


@pytest.mark.parametrize("case", **named(LORA_RUNNERS_ARE_REFUSED))
def test_lora_runners_are_refused(case: Case) -> None:
    """MoE runners made for adapters."""
    check(case)


@pytest.mark.parametrize("case", **named(CHUNKS_ARE_REFUSED))
def test_chunks_are_refused(case: Case) -> None:
    """Chunks that mix or that no page divides."""
    check(case)


@pytest.mark.parametrize("case", **named(MULTIPLEXING_IS_REFUSED))
def test_multiplexing_is_refused(case: Case) -> None:
    """PD multiplexing shares one GPU and little else."""
    check(case)


@pytest.mark.parametrize("case", **named(WORKERS_ARE_REFUSED))
def test_workers_are_refused(case: Case) -> None:
    """Workers are counted from one, helpers from zero."""
    check(case)


@pytest.mark.parametrize("case", **named(HISPARSE_IS_REFUSED))
def test_hisparse_is_refused(case: Case) -> None:
    """HiSparse beside mixed chunks, adaptive steps and other kernels."""
    check(case)


@pytest.mark.parametrize("case", **named(BUCKETS_ARE_REFUSED))
def test_buckets_are_refused(case: Case) -> None:
    """Histogram buckets."""
    check(case)


@pytest.mark.parametrize("case", **named(PRIORITIES_ARE_REFUSED))
def test_priorities_are_refused(case: Case) -> None:
    """Priorities need a policy that honours them."""
    check(case)


@pytest.mark.parametrize("case", **named(MODELS_AND_LOADING_ARE_REFUSED))
def test_models_and_loading_are_refused(case: Case) -> None:
    """Sparse attention, model implementations and loaders of other platforms."""
    check(case)


@pytest.mark.parametrize("case", **named(METRICS_ARE_REFUSED))
def test_metrics_are_refused(case: Case) -> None:
    """Labels without a header, files without a folder."""
    check(case)


@pytest.mark.parametrize("case", **named(COMMUNICATION_IS_REFUSED))
def test_communication_is_refused(case: Case) -> None:
    """Overlap, compression, samplers and ports."""
    check(case)


@pytest.mark.parametrize("case", **named(HOUSEKEEPING_IS_REFUSED))
def test_housekeeping_is_refused(case: Case) -> None:
    """Garbage collection and canaries."""
    check(case)


@pytest.mark.parametrize("case", **named(WATERMARKS_ARE_REFUSED))
def test_watermarks_are_refused(case: Case) -> None:
    """A watermark beside what would break its statistics."""
    check(case)


@pytest.mark.parametrize("case", **named(LOAD_RANGES_ARE_REFUSED))
def test_load_ranges_are_refused(case: Case) -> None:
    """Where load is published."""
    check(case)


def test_the_final_check_has_a_stage_of_its_own() -> None:
    assert outcome(Case("b300", "--base-gpu-id -1")).stage == "check"
    assert outcome(Case("b300", "--speculative-algorithm DSPARK")).stage == "resolve"


def test_an_unreadable_events_config_is_refused() -> None:
    found = outcome(Case("b300", "--load-publish-endpoint auto --kv-events-config '{'"))
    assert found.error is not None
    assert found.error.startswith("ValueError: --kv-events-config is not parseable: ")
