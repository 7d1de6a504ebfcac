"""The serving surface: API, media, gRPC, tokenizers, and the environment handed to workers."""

from __future__ import annotations

import pytest

from perilune.errors import UnusableInput
from resolve_table import Case, check, named, outcome, refusals

OPTIMISTIC = "--disaggregation-mode prefill --optimistic-prefill-attempts 2"

DEFAULTS = [
    Case("b300", "--enable-return-hidden-states", {"return_hidden_states_mode": "full"}),
    Case(
        "b300",
        "--return-hidden-states-mode last",
        {"return_hidden_states_mode": "last", "enable_return_hidden_states": True},
    ),
    Case(
        "b300", "--allowed-media-domains Example.COM. b.org b.org", {"allowed_media_domains": ["b.org", "example.com"]}
    ),
    Case("b300", "--allowed-media-domains '[::1]' 10.0.0.1", {"allowed_media_domains": ["10.0.0.1", "::1"]}),
    Case("b300", "--allowed-media-domains bücher.de", {"allowed_media_domains": ["xn--bcher-kva.de"]}),
    Case(
        "b300",
        "--enable-watermark --watermark-config "
        '\'{"key":"ab","context_window":8,"mixing_probability":0.5,"default_enabled":true}\'',
        {
            "watermark_key": "ab",
            "watermark_context_window": 8,
            "watermark_mixing_probability": 0.5,
            "watermark_default_enabled": True,
        },
    ),
    Case("b300", "--prefill-decode-interval 5", {"prefill_decode_interval": 5}),
    Case("b300", "--disable-fast-image-processor", {"image_processor_backend": "pil"}),
    Case("b300", "--tool-call-parser qwen25", {"tool_call_parser": "qwen"}),
    Case("b300", "--tool-call-parser kimi_k2", {"tool_call_parser": "kimi_k2"}),
    Case(
        "b300",
        "--enable-flashinfer-allreduce-fusion",
        {"enable_flashinfer_allreduce_fusion": False, "flashinfer_allreduce_fusion_backend": "auto"},
    ),
    Case(
        "b300",
        "--attention-backend tokenspeed_mla",
        {"attention_backend": "cutedsl_mla", "prefill_attention_backend": "trtllm_mla", "kv_cache_dtype": "fp8_e4m3"},
    ),
    Case("b300", "--prefill-attention-backend tokenspeed_mla", {"prefill_attention_backend": "trtllm_mla"}),
    Case(
        "b300",
        "DSPARK --speculative-num-draft-tokens 8 --decode-attention-backend tokenspeed_mla",
        {"speculative_attention_mode": "decode", "kv_cache_dtype": "fp8_e4m3"},
    ),
    Case("b300", "--grpc-mode", {"smg_grpc_mode": True, "grpc_port": 40000}),
    Case("b300", "--smg-grpc-mode --grpc-port 6000", {"grpc_port": 6000}),
    Case("b300", "SGLANG_GRPC_PORT=5000", {"grpc_port": 5000}),
    Case("b300", "SGLANG_GRPC_PORT=abc", {"grpc_port": None}),
    Case("b300", "SGLANG_GRPC_WORKER_THREADS=9", {"grpc_worker_threads": 9}),
    Case("b300", "--quantization unquant", {"quantization": None, "speculative_draft_model_quantization": None}),
    Case("b300", "--device cuda:0", {"device": "cuda"}),
    Case("a3", "", {"device": "npu"}),
    Case("mi355x", "", {"device": "cuda"}),
    Case("b300", "--tokenizer-path /x --served-model-name y", {"tokenizer_path": "/x", "served_model_name": "y"}),
    Case("b300", "--skip-tokenizer-init --detokenizer-worker-num 2", {"detokenizer_worker_num": 1}),
    Case("b300", "--skip-tokenizer-init --enable-tokenizer-batch-encode", {"enable_tokenizer_batch_encode": False}),
    Case("b300", "--skip-tokenizer-init --enable-dynamic-batch-tokenizer", {"enable_dynamic_batch_tokenizer": False}),
    Case(
        "b300", "SGLANG_RUST_SERVER=1 --skip-tokenizer-init --detokenizer-worker-num 2", {"detokenizer_worker_num": 2}
    ),
    Case("b300", "--load-balance-method total_tokens", {"load_balance_method": "total_tokens"}),
    Case(
        "b300",
        "--load-balance-method auto --disaggregation-mode prefill",
        {"load_balance_method": "follow_bootstrap_room", "prefill_decode_interval": 0, "grammar_backend": "xgrammar"},
    ),
    Case("b300", "SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE=1", {"enable_prefill_delayer": True}),
    Case(
        "b300",
        "SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES=7 SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK=0.5",
        {"prefill_delayer_max_delay_passes": 7, "prefill_delayer_token_usage_low_watermark": 0.5},
    ),
    Case(
        "b300",
        "SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK=x",
        {"prefill_delayer_token_usage_low_watermark": None},
    ),
    Case("b300", "SGLANG_IS_IN_CI=true", {"soft_watchdog_timeout": 300}),
    Case("b300", "--mm-feature-transport cpu", {"mm_feature_transport": "cpu"}),
    Case("b300", "--mm-feature-transport cuda_ipc --encoder-only", {"mm_feature_transport": "cpu"}),
    Case("b300", "SGLANG_USE_CUDA_IPC_TRANSPORT=1", {"mm_feature_transport": "cuda_ipc"}),
    Case(
        "b300", "SGLANG_USE_CUDA_IPC_TRANSPORT=0 --mm-feature-transport cuda_ipc", {"mm_feature_transport": "cuda_ipc"}
    ),
    Case("gb300", "--nnodes 2", {"mm_feature_transport": "cpu"}),
    Case("a3", "--debug-cuda-graph", {"debug_cuda_graph": False}),
    Case("b300", f"{OPTIMISTIC} --pp-size 2", {"optimistic_prefill_attempts": 0}),
    Case("b300", f"{OPTIMISTIC} --enable-hierarchical-cache", {"optimistic_prefill_attempts": 2}),
    Case(
        "b300",
        f"{OPTIMISTIC} --enable-hierarchical-cache --hicache-write-policy write_through_selective",
        {"optimistic_prefill_attempts": 0},
    ),
    Case(
        "b300",
        f"{OPTIMISTIC} --enable-hierarchical-cache --hicache-storage-backend file",
        {"optimistic_prefill_attempts": 0},
    ),
    Case(
        "b300",
        "--debug-tensor-dump-output-folder /tmp/x",
        {"decode.backend": "disabled", "prefill.backend": "disabled", "skip_server_warmup": True},
    ),
    Case("b300", "--limit-mm-data-per-request '{\"image\":3}'", {"limit_mm_data_per_request": {"image": 3}}),
]

REFUSED_API = refusals(
    ("b300", "--allowed-media-domains ''", "ValueError: allowed media domains cannot be empty"),
    (
        "b300",
        "--allowed-media-domains http://x",
        "ValueError: Invalid allowed media domain 'http://x': provide a hostname only",
    ),
    (
        "b300",
        "--allowed-media-domains x:80",
        "ValueError: Invalid allowed media domain 'x:80': ports are not supported",
    ),
    ("b300", "--allowed-media-domains a..b", "ValueError: Invalid allowed media domain 'a..b'"),
    ("b300", "--media-url-max-file-size-mb -1", "ValueError: media_url_max_file_size_mb must be non-negative"),
    ("b300", '--watermark-config \'{"key":"zz"}\'', "WatermarkConfigError: watermark key must contain only hex digits"),
    ("b300", "--watermark-config '{\"key\":5}'", "WatermarkConfigError: watermark key must be a hex string"),
    ("b300", "--watermark-config '{\"foo\":1}'", "WatermarkConfigError: watermark config contains unknown fields"),
    ("b300", "--watermark-config '{bad'", "WatermarkConfigError: failed to read watermark config JSON"),
    (
        "b300",
        "--watermark-config '{\"context_window\":0}'",
        "WatermarkConfigError: watermark config context_window must be an integer from 1 to 64",
    ),
    (
        "b300",
        '--watermark-config \'{"mixing_probability":"a"}\'',
        "WatermarkConfigError: watermark config mixing_probability must be a number",
    ),
    (
        "b300",
        "--watermark-config '{\"default_enabled\":1}'",
        "WatermarkConfigError: watermark config default_enabled must be a boolean",
    ),
    (
        "b300",
        '--watermark-config \'{"key":""}\'',
        "WatermarkConfigError: watermark key must contain 1 to 16 hex digits",
    ),
    (
        "b300",
        "--mm-process-config '{\"image\":3}'",
        "TypeError: mm_process_config['image'] must be a dict, but got <class 'int'>",
    ),
    ("b300", "--mm-process-config '[1]'", "TypeError: mm_process_config must be a dict, but got <class 'list'>"),
    ("b300", "--mm-preprocess-cache-size-mb -1", "ValueError: mm_preprocess_cache_size_mb must be non-negative"),
    (
        "b300",
        "--preferred-sampling-params '{\"watermark\":1}'",
        "ValueError: watermark is not supported in --preferred-sampling-params",
    ),
    (
        "b300",
        '--preferred-sampling-params \'{"stop":"a"}\' --skip-tokenizer-init',
        "ValueError: stop=['a'] is unavailable when skip_tokenizer_init=True (requires tokenizer to "
        "decode tokens to text for matching).",
    ),
    (
        "b300",
        "--preferred-sampling-params '{\"min_new_tokens\":3}' --skip-tokenizer-init",
        "ValueError: min_new_tokens=3 is unavailable when skip_tokenizer_init=True (requires "
        "tokenizer for eos_token_id).",
    ),
    (
        "b300",
        '--preferred-sampling-params \'{"stop_regex":["a"]}\' --skip-tokenizer-init',
        "ValueError: stop_regex=['a'] is unavailable when skip_tokenizer_init=True (requires "
        "tokenizer to decode tokens to text for matching).",
    ),
    (
        "b300",
        "--preferred-sampling-params '{\"foo\":0.1}' --skip-tokenizer-init",
        "TypeError: Unexpected keyword argument 'foo'",
    ),
    (
        "b300",
        "--default-chat-template-kwargs '[1]'",
        "ValueError: --default-chat-template-kwargs must decode to a JSON object",
    ),
    ("b300", "--prefill-decode-interval -1", "ValueError: --prefill-decode-interval must be non-negative."),
    (
        "b300",
        "--prefill-decode-interval-min-bs -1",
        "ValueError: --prefill-decode-interval-min-bs must be non-negative.",
    ),
    (
        "b300",
        "--enable-response-store --disaggregation-mode prefill",
        "ValueError: --enable-response-store is not supported with --disaggregation-mode=prefill or "
        "decode; response storage must remain disabled in PD mode.",
    ),
    ("b300", "--sampling-mask-max-tokens 0", "ValueError: --sampling-mask-max-tokens must be positive (got 0)."),
    ("b300", "--ssl-keyfile a", "ValueError: --ssl-keyfile requires --ssl-certfile to be specified as well."),
    ("b300", "--ssl-certfile a", "ValueError: --ssl-certfile requires --ssl-keyfile to be specified as well."),
    ("b300", "--ssl-ca-certs a", "ValueError: --ssl-ca-certs has no effect without --ssl-certfile and --ssl-keyfile."),
    (
        "b300",
        "--ssl-keyfile-password a",
        "ValueError: --ssl-keyfile-password has no effect without --ssl-certfile and --ssl-keyfile.",
    ),
    (
        "b300",
        "--enable-ssl-refresh",
        "ValueError: --enable-ssl-refresh requires --ssl-certfile and --ssl-keyfile to be specified.",
    ),
    (
        "b300",
        "--enable-http-worker-reuseport",
        "ValueError: --enable-http-worker-reuseport requires --tokenizer-worker-num > 1 and has no "
        "effect with --enable-http2.",
    ),
    (
        "b300",
        "--enable-http-worker-reuseport --tokenizer-worker-num 2 --enable-http2",
        "ValueError: --enable-http-worker-reuseport requires --tokenizer-worker-num > 1 and has no "
        "effect with --enable-http2.",
    ),
    (
        "b300",
        "--enable-http2 --http2-max-concurrent-streams 0",
        "ValueError: --http2-max-concurrent-streams must be between 1 and 4294967295.",
    ),
    (
        "b300",
        "--enable-http2 --http2-initial-connection-window-size 10",
        "ValueError: --http2-initial-connection-window-size must be between 1024 and 2147483647.",
    ),
    ("b300", "--asr-max-buffer-seconds 0", "ValueError: --asr-max-buffer-seconds must be positive (got 0)."),
    ("b300", "--asr-max-concurrent-sessions 0", "ValueError: --asr-max-concurrent-sessions must be positive (got 0)."),
    (
        "b300",
        "--enable-tokenizer-batch-encode --enable-dynamic-batch-tokenizer",
        "ValueError: Cannot enable both --enable-tokenizer-batch-encode and "
        "--enable-dynamic-batch-tokenizer. Please choose one tokenizer batching approach.",
    ),
    (
        "b300",
        "SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS=5",
        "ValueError: SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS is no longer supported. Unset "
        "it. To enable sampling masks for disaggregated serving, set "
        "SGLANG_ENABLE_DISAGG_SAMPLING_MASK=1 and use the same positive --sampling-mask-max-tokens "
        "value on both prefill and decode servers.",
    ),
)

REFUSED_SERVERS = refusals(
    ("b300", "--sidecar m", "ValueError: --sidecar requires --grpc-port or SGLANG_GRPC_PORT."),
    ("b300", "--sidecar ' ' --grpc-port 5000", "ValueError: --sidecar must not be empty."),
    ("b300", "--sidecar-args '[\"a\"]'", "ValueError: --sidecar-args requires --sidecar."),
    (
        "b300",
        "--sidecar m --sidecar-args '{\"a\":1}' --grpc-port 5000",
        "ValueError: --sidecar-args must be a JSON array of strings.",
    ),
    (
        "b300",
        "--sidecar m --smg-grpc-mode",
        "ValueError: --sidecar requires SGLang's native gRPC server; it cannot be combined with "
        "--smg-grpc-mode/--grpc-mode.",
    ),
    (
        "b300",
        "--disable-fast-image-processor --image-processor-backend torchvision",
        "ValueError: --disable-fast-image-processor conflicts with --image-processor-backend=torchvision.",
    ),
    (
        "b300",
        "--smg-grpc-mode --port 60000",
        "ValueError: --grpc-port / SGLANG_GRPC_PORT (70000) must be between 1 and 65535",
    ),
    ("b300", "--grpc-port 70000", "ValueError: --grpc-port / SGLANG_GRPC_PORT (70000) must be between 1 and 65535"),
    (
        "b300",
        "--grpc-port 5000 --use-ray",
        "ValueError: --grpc-port is not supported with --use-ray: the Ray serve launch path does not "
        "start the native gRPC server.",
    ),
    (
        "b300",
        "--grpc-port 5000 --encoder-only",
        "ValueError: --grpc-port is not supported with --encoder-only: encoder disaggregation uses its own server.",
    ),
    (
        "b300",
        "--grpc-port 5000 --tokenizer-worker-num 2",
        "ValueError: Native gRPC does not yet support --tokenizer-worker-num > 1. Unset --grpc-port "
        "or set --tokenizer-worker-num 1.",
    ),
    (
        "b300",
        "--grpc-port 5000 --api-key x",
        "ValueError: --grpc-port is incompatible with --api-key/--admin-api-key: the native gRPC "
        "listener bypasses HTTP auth middleware.",
    ),
    ("b300", "--grpc-response-timeout-secs 0", "ValueError: --grpc-response-timeout-secs must be positive"),
    (
        "b300",
        "--mm-feature-transport cuda_vmm --pp-size 2",
        "ValueError: --mm-feature-transport=cuda_vmm does not support pipeline parallelism.",
    ),
    (
        "b300",
        "--mm-feature-transport cuda_ipc --nnodes 2",
        "ValueError: --mm-feature-transport=cuda_ipc only supports a single node.",
    ),
    ("mi355x", "--mm-feature-transport cuda_ipc", "ValueError: --mm-feature-transport=cuda_ipc requires NVIDIA CUDA."),
    ("a3", "--mm-feature-transport cuda_vmm", "ValueError: --mm-feature-transport=cuda_vmm requires NVIDIA CUDA."),
    (
        "h200",
        "--enable-deepseek-v4-fp4-indexer",
        "ValueError: --enable-deepseek-v4-fp4-indexer requires SM100, SM120, or gfx95 GPUs with FP4 indexer support.",
    ),
    (
        "b300",
        "SGLANG_GRPC_PORT=5000 SGLANG_GRPC_WORKER_THREADS=0",
        "ValueError: SGLANG_GRPC_WORKER_THREADS (0) must be >= 1",
    ),
)


@pytest.mark.parametrize("case", **named([*DEFAULTS]))
def test_resolved_as_the_engine_does(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named([*REFUSED_API, *REFUSED_SERVERS]))
def test_refused_in_the_engine_s_words(case: Case) -> None:
    check(case)


ENVIRONMENTS = [
    ("b300", "", "SGLANG_ENABLE_TORCH_COMPILE", "0"),
    ("b300", "", "SGLANG_DISABLE_OUTLINES_DISK_CACHE", "0"),
    ("b300", "", "SGLANG_ENABLE_DETERMINISTIC_INFERENCE", "0"),
    ("b300", "", "SGLANG_USE_CUDA_IPC_TRANSPORT", "0"),
    ("b300", "", "SGLANG_OPT_FP8_WO_A_GEMM", None),
    ("h200", "", "SGLANG_OPT_FP8_WO_A_GEMM", "False"),
    ("h200", "SGLANG_OPT_FP8_WO_A_GEMM=1", "SGLANG_OPT_FP8_WO_A_GEMM", "1"),
    ("b300", "--enable-torch-compile", "SGLANG_ENABLE_TORCH_COMPILE", "1"),
    ("b300", "--disable-outlines-disk-cache", "SGLANG_DISABLE_OUTLINES_DISK_CACHE", "1"),
    ("b300", "--mamba-ssm-dtype bfloat16", "SGLANG_MAMBA_SSM_DTYPE", "bfloat16"),
    ("b300", "--mm-feature-transport cuda_ipc", "SGLANG_USE_CUDA_IPC_TRANSPORT", "1"),
    (
        "b300",
        "--enable-deterministic-inference --attention-backend triton",
        "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE",
        "0",
    ),
    ("b300", "--debug-cuda-graph", "SGLANG_USE_BREAKABLE_CUDA_GRAPH", "1"),
    ("a3", "--debug-cuda-graph", "SGLANG_USE_BREAKABLE_CUDA_GRAPH", None),
    ("b300", "--crash-dump-folder /dumps", "CUDA_COREDUMP_FILE", "/dumps/%h/core.cuda.%t.%p"),
    ("b300", "CUDA_COREDUMP_FILE=/mine/%t --crash-dump-folder /dumps", "CUDA_COREDUMP_FILE", "/mine/%t"),
]


@pytest.mark.parametrize(("platform", "flags", "variable", "value"), ENVIRONMENTS)
def test_what_workers_find_in_their_environment(platform: str, flags: str, variable: str, value: str | None) -> None:
    assert outcome(Case(platform, flags)).env.get(variable) == value


@pytest.mark.parametrize("kinds", ['{"text":1}', '{"image":1,"text":1}'])
def test_a_media_limit_on_an_unknown_modality_is_refused(kinds: str) -> None:
    found = outcome(Case("b300", f"--limit-mm-data-per-request '{kinds}'"))
    assert str(found.error).startswith("ValueError: Invalid modality 'text' in --limit-mm-data-per-request.")


def test_a_watermark_file_is_not_read() -> None:
    with pytest.raises(UnusableInput, match="configuration in a file is not modelled"):
        outcome(Case("b300", "--watermark-config /etc/watermark.json"))


def test_an_imex_channel_is_mentioned_where_it_would_change_the_transport() -> None:
    found = outcome(Case("gb300", "--nnodes 2"))
    assert found["mm_feature_transport"] == "cpu"
    assert any("IMEX" in warning for warning in found.warnings)
