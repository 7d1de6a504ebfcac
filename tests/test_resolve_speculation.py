"""Speculative decoding: names, draft tokens, draft attention, the limit of 48 requests, and every refusal."""

from __future__ import annotations

from typing import Any

import pytest

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.model.config import ModelConfig, known_config
from perilune.plan.resolve import resolve
from perilune.plan.resolve.speculation.draft import attends_locally_or_causally, block_size, gamma
from perilune.plan.resolve.state import Resolved
from perilune.plan.server import Server
from resolve_table import Case, check, named, refusals, table

DFLASH = "--speculative-algorithm DFLASH --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
EAGLE = "--speculative-algorithm EAGLE --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
STANDALONE = "--speculative-algorithm STANDALONE --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
DRAFT = "--speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
TWO_NODES = "--tp-size 16 --nnodes 2 --dist-init-addr 1.1.1.1:1"
FOUR_NODES = "--tp-size 32 --nnodes 4 --dist-init-addr 1.1.1.1:1"
UNO = "--speculative-algorithm UNO --uno-lora-path u"
NARROW_NGRAM = "--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1"
CAPTURE = "--enable-return-aux-hidden-states"
PIPELINE = "--tp-size 1 --pp-size 8"

DSPARK_DEFAULTS = table(
    (
        "speculative_draft_model_revision speculative_moe_runner_backend "
        "speculative_draft_attention_backend speculative_attention_mode"
    ),
    ("b300", "DSPARK", "main", "flashinfer_mxfp4", "trtllm_mha", "decode"),
)
DRAFT_TOKENS = table(
    (
        "speculative_algorithm speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens "
        "max_running_requests"
    ),
    ("b300", f"--speculative-algorithm dspark {DRAFT}", "DSPARK", 1, 1, 8, 48),
    ("b300", "DSPARK --speculative-num-steps 3 --speculative-eagle-topk 4", "DSPARK", 1, 1, 8, 48),
    ("b300", "DSPARK --speculative-dspark-block-size 5", "DSPARK", 1, 1, 6, 48),
    ("b300", "DSPARK --json-model-override-args '{\"block_size\": 5}'", "DSPARK", 1, 1, 6, 48),
    ("b300", "DSPARK --max-running-requests 256", "DSPARK", 1, 1, 8, 256),
    ("b300", "--attn-dp-size 2 --enable-dp-lm-head DSPARK", "DSPARK", 1, 1, 8, 48),
    ("b300", f"{PIPELINE} --disaggregation-mode prefill DSPARK", "DSPARK", 1, 1, 8, 48),
    ("b300", f"{DFLASH} --json-model-override-args '{{\"block_size\": 0}}'", "DFLASH", 1, 1, 16, 48),
    ("b300", 'DSPARK --json-model-override-args \'{"markov_head_type": "odd"}\'', "DSPARK", 1, 1, 8, 48),
    (
        "b300",
        f"{NARROW_NGRAM} --speculative-ngram-external-corpus-path c.json --speculative-ngram-external-sam-budget 4",
        "NGRAM",
        12,
        1,
        12,
        48,
    ),
    ("b300", EAGLE, "EAGLE", 3, 1, 4, 48),
    ("b300", f"--speculative-algorithm NEXTN {DRAFT}", "EAGLE", 3, 1, 4, 48),
    (
        "b300",
        f"{EAGLE3} --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 8",
        "EAGLE3",
        2,
        1,
        3,
        48,
    ),
    (
        "h200",
        f"{TWO_NODES} {EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
        "EAGLE3",
        3,
        4,
        8,
        48,
    ),
    ("b300", "--speculative-algorithm NONE", "NONE", None, None, None, None),
    (
        "h200",
        f"--model-path meta-llama/Llama-3.3-70B-Instruct --page-size 1 --attention-backend triton {EAGLE3}",
        "EAGLE3",
        5,
        4,
        8,
        48,
    ),
    (
        "b300",
        (
            f"{NARROW_NGRAM} --speculative-draft-window-size 64 --speculative-num-steps 3 "
            "--speculative-num-draft-tokens 6"
        ),
        "NGRAM",
        3,
        1,
        6,
        48,
    ),
)
DRAFT_PATH = table(
    "speculative_algorithm speculative_draft_model_path speculative_draft_model_revision",
    (
        "b300",
        "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --speculative-algorithm NEXTN",
        "EAGLE",
        "deepseek-ai/DeepSeek-V3",
        None,
    ),
    (
        "b300",
        f"--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --speculative-algorithm NEXTN {DRAFT}",
        "EAGLE",
        "RadixArk/Kimi-K3-DSpark",
        "main",
    ),
    ("b300", "--speculative-algorithm NEXTN", "EAGLE", None, None),
)
BUNDLED_DSPARK = table(
    (
        "speculative_algorithm speculative_draft_model_path speculative_draft_model_revision "
        "speculative_num_draft_tokens"
    ),
    (
        "b300",
        (
            '--speculative-algorithm DSPARK --json-model-override-args \'{"dspark_block_size": 4, '
            '"dspark_markov_rank": 8}\''
        ),
        "DSPARK",
        "moonshotai/Kimi-K3",
        None,
        5,
    ),
)
UNO_DRAFTS = table(
    "speculative_num_steps speculative_eagle_topk lora_strict_loading enable_mixed_chunk",
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8 --speculative-num-steps 3 --enable-mixed-chunk",
        1,
        1,
        True,
        False,
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 7 --speculative-num-steps 3 --speculative-eagle-topk 3",
        3,
        3,
        True,
        False,
    ),
)
DRAFT_ATTENTION = table(
    "speculative_num_draft_tokens speculative_draft_attention_backend",
    ("h200", f"{TWO_NODES} DSPARK", 8, None),
    ("mi355x", "DSPARK", 8, None),
    ("a3", f"{FOUR_NODES} DSPARK", 8, None),
    ("b300", DFLASH, 7, "flashinfer"),
    ("h200", f"{TWO_NODES} {DFLASH}", 7, "fa3"),
    ("mi355x", DFLASH, 7, "triton"),
    ("mi355x", f"--attention-backend aiter {DFLASH}", 7, "triton"),
    ("a3", f"{FOUR_NODES} {DFLASH}", 7, "ascend"),
)
DFLASH_ATTENTION_DP = table(
    "speculative_num_draft_tokens",
    ("b300", f"--attn-dp-size 2 --enable-dp-lm-head {DFLASH}", 7),
    ("a3", f"{FOUR_NODES} --attn-dp-size 2 {DFLASH}", 7),
)
TRTLLM_MHA_DRAFT = table(
    "speculative_draft_attention_backend",
    ("b300", f"{DFLASH} --speculative-draft-attention-backend trtllm_mha", "fa4"),
    ("h200", f"{TWO_NODES} {DFLASH} --speculative-draft-attention-backend trtllm_mha", "flashinfer"),
    (
        "b300",
        (
            f"{DFLASH} --speculative-draft-attention-backend trtllm_mha --json-model-override-args "
            f"'{{\"is_causal\": true}}'"
        ),
        "trtllm_mha",
    ),
)
DRAFT_WINDOW = table(
    "speculative_num_draft_tokens speculative_draft_window_size speculative_draft_sink_size",
    (
        "b300",
        (
            f"{DFLASH} --speculative-dflash-block-size 16 --speculative-draft-window-size 2048 "
            "--speculative-draft-sink-size 4"
        ),
        16,
        2048,
        4,
    ),
)
MIXED_CHUNKS = table(
    "speculative_num_steps speculative_num_draft_tokens enable_mixed_chunk",
    ("b300", "DSPARK --enable-mixed-chunk", 1, 8, True),
    ("b300", NARROW_NGRAM, 12, 12, False),
    ("h200", f"{TWO_NODES} --speculative-algorithm NGRAM --enable-mixed-chunk", 1, 12, False),
    ("b300", f"{STANDALONE} --enable-mixed-chunk", 3, 4, False),
    ("b300", "--speculative-algorithm FROZEN_KV_MTP --enable-mixed-chunk", None, None, False),
)
REJECTION_SAMPLING = table(
    "speculative_use_rejection_sampling",
    ("mi355x", EAGLE, True),
    ("mi355x", f"SGLANG_SIMULATE_ACC_LEN=3 {EAGLE}", False),
    ("mi355x", EAGLE3, False),
    ("b300", f"{EAGLE} --speculative-use-block-verification", True),
)
ADAPTIVE = table(
    "speculative_num_steps speculative_num_draft_tokens speculative_adaptive",
    ("b300", f"{EAGLE} --speculative-adaptive", 3, 4, True),
    ("b300", "DSPARK --speculative-adaptive", 1, 8, False),
    (
        "h200",
        (
            f"{TWO_NODES} {EAGLE} --speculative-adaptive --speculative-num-steps 3 --speculative-eagle-topk 2 "
            "--speculative-num-draft-tokens 4"
        ),
        3,
        4,
        False,
    ),
    ("b300", f"--attn-dp-size 2 {EAGLE} --speculative-adaptive", 3, 4, False),
)
HIDDEN_STATE_CAPTURE = table(
    "speculative_algorithm aux_hidden_state_capture",
    ("b300", f"--speculative-algorithm eagle3 {CAPTURE}", None, "eagle3"),
    ("b300", f"--speculative-algorithm DSPARK {CAPTURE} --return-aux-hidden-state-layer-ids 7 23", None, "dspark"),
)
DRAFT_IS_REFUSED = refusals(
    ("b300", "--speculative-algorithm BOGUS", "ValueError: Unknown speculative algorithm name: BOGUS"),
    (
        "b300",
        "--speculative-algorithm DSPARK",
        "ValueError: DSpark dense speculative decoding requires setting --speculative-draft-model-path.",
    ),
    (
        "b300",
        "--speculative-algorithm DFLASH",
        "ValueError: DFLASH speculative decoding requires setting --speculative-draft-model-path.",
    ),
    (
        "b300",
        f"--disaggregation-mode decode --disaggregation-decode-enable-radix-cache {DFLASH}",
        (
            "ValueError: --disaggregation-decode-enable-radix-cache is incompatible with speculative decoding "
            "(--speculative-algorithm DFLASH)"
        ),
    ),
)
BLOCK_IS_REFUSED = refusals(
    (
        "b300",
        "DSPARK --speculative-num-draft-tokens 4",
        (
            "ValueError: DSpark speculative_num_draft_tokens must equal gamma + 1 (= 8 for gamma=7), but got "
            "speculative_num_draft_tokens=4."
        ),
    ),
    (
        "b300",
        "DSPARK --speculative-dspark-block-size 0",
        "ValueError: DSpark requires --speculative-dspark-block-size to be positive, got 0.",
    ),
    (
        "b300",
        "DSPARK --json-model-override-args '{\"block_size\": null}' --speculative-num-draft-tokens 1",
        "ValueError: DSpark speculative_num_draft_tokens must be >= 2 (= gamma + 1), got 1.",
    ),
    (
        "b300",
        f"{DFLASH} --speculative-dflash-block-size 0",
        "ValueError: DFLASH requires --speculative-dflash-block-size to be positive, got 0.",
    ),
    (
        "b300",
        f"{DFLASH} --speculative-dflash-block-size 8 --speculative-num-draft-tokens 7",
        (
            "ValueError: Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but "
            "they differ. For DFLASH they must match. speculative_num_draft_tokens=7, "
            "speculative_dflash_block_size=8."
        ),
    ),
    (
        "b300",
        f"{DFLASH} --speculative-draft-window-size 4",
        (
            "ValueError: --speculative-draft-window-size must be >= --speculative-num-draft-tokens "
            "(block_size). window_size=4, block_size=7."
        ),
    ),
    (
        "b300",
        f"{DFLASH} --speculative-draft-window-size 0",
        "ValueError: --speculative-draft-window-size must be positive, got 0.",
    ),
    (
        "b300",
        f"{DFLASH} --speculative-draft-sink-size 4",
        "ValueError: --speculative-draft-sink-size requires --speculative-draft-window-size.",
    ),
    (
        "b300",
        f"{DFLASH} --speculative-draft-sink-size -1",
        "ValueError: --speculative-draft-sink-size must be non-negative, got -1.",
    ),
)
PARALLELISM_IS_REFUSED = refusals(
    ("b300", "--attn-dp-size 2 DSPARK", "ValueError: DSpark with dp attention requires --enable-dp-lm-head."),
    (
        "b300",
        "--attn-dp-size 2 --enable-dp-lm-head --moe-a2a-backend deepep DSPARK",
        (
            "ValueError: DSpark with dp attention supports moe_a2a_backend 'none' (built-in TP MoE), "
            "'megamoe', or 'mori', got 'deepep'."
        ),
    ),
    (
        "b300",
        "--attn-dp-size 2 --enable-dp-lm-head --speculative-moe-a2a-backend deepep DSPARK",
        (
            "ValueError: DSpark ignores --speculative-moe-a2a-backend; with dp attention it must match the "
            "target moe_a2a_backend='none' (got 'deepep')."
        ),
    ),
    (
        "b300",
        f"{PIPELINE} DSPARK",
        (
            "ValueError: DSpark pipeline parallelism requires PD prefill; decode and non-disaggregated serving "
            "require pp_size == 1."
        ),
    ),
    ("b300", f"{PIPELINE} {DFLASH}", "ValueError: Currently DFLASH speculative decoding only supports pp_size == 1."),
    ("b300", f"--attn-dp-size 2 {DFLASH}", "ValueError: DFLASH with dp attention requires --enable-dp-lm-head."),
    (
        "b300",
        f"SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION=1 --attn-dp-size 2 --enable-dp-lm-head {DFLASH}",
        "ValueError: DP spec/prefill coordination requires single-layer EAGLE, EAGLE3 or DSPARK",
    ),
)
VERIFY_LAYOUT_IS_REFUSED = refusals(
    (
        "b300",
        (
            "SGLANG_RAGGED_VERIFY_MODE=compact --attn-dp-size 8 --enable-dp-lm-head --moe-a2a-backend megamoe "
            "--moe-runner-backend deep_gemm DSPARK"
        ),
        "ValueError: DSpark DP MoE or prefill coordination requires SGLANG_RAGGED_VERIFY_MODE=static.",
    ),
    (
        "b300",
        (
            "SGLANG_RAGGED_VERIFY_MODE=cap-accept SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION=1 --attn-dp-size "
            "2 --enable-dp-lm-head DSPARK"
        ),
        "ValueError: DSpark DP MoE or prefill coordination requires SGLANG_RAGGED_VERIFY_MODE=static.",
    ),
    (
        "b300",
        f"SGLANG_RAGGED_VERIFY_MODE=fast {EAGLE}",
        "ValueError: invalid SGLANG_RAGGED_VERIFY_MODE='fast'; expected one of 'static', 'cap-accept', 'compact'",
    ),
    (
        "b300",
        "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION=1",
        "ValueError: DP spec/prefill coordination requires single-layer EAGLE, EAGLE3 or DSPARK",
    ),
)
NGRAM_IS_REFUSED = refusals(
    (
        "b300",
        "--speculative-algorithm NGRAM",
        (
            "ValueError: speculative_eagle_topk(10) > 1 with page_size(64) > 1 is unstable and produces "
            "incorrect results for paged attention backends. This combination is only supported for the "
            "'flashinfer' backend."
        ),
    ),
    (
        "a3",
        f"{FOUR_NODES} --speculative-algorithm NGRAM",
        "ValueError: Ngram speculative decoding only supports CUDA, CPU, or XPU devices.",
    ),
    (
        "b300",
        f"--attn-dp-size 2 {NARROW_NGRAM}",
        "ValueError: Currently ngram speculative decoding does not support dp attention.",
    ),
    (
        "b300",
        "--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 0",
        "ZeroDivisionError: integer division or modulo by zero",
    ),
    (
        "b300",
        f"{NARROW_NGRAM} --speculative-ngram-external-corpus-path c.json",
        (
            "ValueError: --speculative-ngram-external-sam-budget must be positive when "
            "--speculative-ngram-external-corpus-path is set."
        ),
    ),
    (
        "b300",
        (
            f"{NARROW_NGRAM} --speculative-ngram-external-corpus-path c.json "
            "--speculative-ngram-external-sam-budget 4 --speculative-ngram-external-corpus-max-tokens 0"
        ),
        (
            "ValueError: --speculative-ngram-external-corpus-max-tokens must be positive when "
            "--speculative-ngram-external-corpus-path is set."
        ),
    ),
    (
        "b300",
        f"{NARROW_NGRAM} --speculative-ngram-external-corpus-path c.json --speculative-ngram-external-sam-budget 12",
        (
            "ValueError: speculative_ngram_external_sam_budget must be less than or equal to "
            "speculative_num_draft_tokens - 1 (11)."
        ),
    ),
)
EAGLE_IS_REFUSED = refusals(
    ("b300", f"{EAGLE} --speculative-eagle-topk 1", "AssertionError: "),
    (
        "b300",
        f"{EAGLE} --speculative-num-steps 3",
        "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
    ),
    (
        "b300",
        f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
        (
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', "
            "'fa3', 'triton'); got attention_backend='trtllm_mla'. Use page_size == 1 or one of those backends."
        ),
    ),
    (
        "b300",
        f"--attn-dp-size 2 {STANDALONE}",
        "ValueError: Currently standalone speculative decoding does not support dp attention.",
    ),
    (
        "b300",
        f"{EAGLE} --speculative-adaptive --speculative-num-steps 4",
        (
            "ValueError: --speculative-num-steps=4 is not in the adaptive config candidate_steps [0, 1, 3, 5, "
            "7]. Pass one of those values."
        ),
    ),
    (
        "b300",
        (
            f"--model-path meta-llama/Llama-3.3-70B-Instruct --attention-backend trtllm_mha {EAGLE3} "
            "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
        ),
        "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
    ),
)
SAMPLING_IS_REFUSED = refusals(
    (
        "h200",
        (
            f"{TWO_NODES} {EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 4 "
            "--speculative-num-draft-tokens 8 --speculative-use-rejection-sampling"
        ),
        "ValueError: --speculative-use-rejection-sampling requires --speculative-eagle-topk=1.",
    ),
    (
        "b300",
        f"{STANDALONE} --speculative-use-rejection-sampling",
        (
            "NotImplementedError: --speculative-use-rejection-sampling is only supported for EAGLE / EAGLE3 / "
            "NEXTN, not speculative_algorithm=STANDALONE."
        ),
    ),
    (
        "b300",
        f"{EAGLE} --speculative-use-rejection-sampling --speculative-accept-threshold-acc 0.9",
        (
            "ValueError: --speculative-use-rejection-sampling is incompatible with "
            "--speculative-accept-threshold-single / --speculative-accept-threshold-acc; rejection sampling "
            "ignores the accept thresholds."
        ),
    ),
    (
        "b300",
        f"{STANDALONE} --speculative-use-block-verification",
        "ValueError: --speculative-use-block-verification only supports EAGLE / EAGLE3 / NEXTN / DFLASH / DSPARK.",
    ),
    (
        "a3",
        f"{FOUR_NODES} {EAGLE} --speculative-use-block-verification",
        "ValueError: --speculative-use-block-verification only supports CUDA or ROCm.",
    ),
    (
        "a3",
        f"{FOUR_NODES} --enable-deterministic-inference {EAGLE} --speculative-use-rejection-sampling",
        (
            "ValueError: Deterministic rejection sampling is currently supported only on CUDA-compatible "
            "devices because draft proposal sampling uses a Triton hash kernel."
        ),
    ),
)
UNO_IS_REFUSED = refusals(
    ("b300", "--tp-size 1 --speculative-algorithm UNO", "ValueError: UNO requires --uno-lora-path."),
    (
        "b300",
        f"--tp-size 1 {UNO}",
        (
            "ValueError: UNO requires --speculative-num-draft-tokens to be a positive integer denoting the "
            "linear width or tree verify width Q."
        ),
    ),
    (
        "b300",
        f"--tp-size 1 --speculative-algorithm UNO {DRAFT}",
        "ValueError: UNO reuses the target model and does not accept --speculative-draft-model-path.",
    ),
    (
        "b300",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8 --speculative-eagle-topk 2",
        (
            "ValueError: UNO tree mode requires --speculative-num-steps so its draft width F can be derived as "
            "speculative_num_steps + 1."
        ),
    ),
    (
        "b300",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 12 --speculative-eagle-topk 2 --speculative-num-steps 2",
        "ValueError: UNO tree mode cannot build the requested Q from F and K: Q=12 exceeds capacity=7 for F=3, K=2.",
    ),
    (
        "b300",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 30 --speculative-eagle-topk 4 --speculative-num-steps 4",
        (
            "ValueError: UNO tree mode cannot represent the requested Q in EAGLE's parent-list ABI: Q-1=29 "
            "exceeds K*(F-2)+1=13 for F=5, K=4."
        ),
    ),
    ("b300", f"{UNO} --speculative-num-draft-tokens 8", "ValueError: UNO requires TP=PP=1."),
    (
        "b300",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8",
        (
            "ValueError: UNO requires FA3 for both prefill and decode attention; got prefill='trtllm_mla', "
            "decode='trtllm_mla'."
        ),
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --enable-deterministic-inference",
        (
            "ValueError: UNO does not support --enable-deterministic-inference because its sampling path does "
            "not use per-request seeds."
        ),
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --enable-strict-thinking --reasoning-parser kimi_k3",
        "ValueError: UNO does not support --enable-strict-thinking because it requires grammar decoding.",
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8 --speculative-eagle-topk 0",
        "ValueError: UNO requires --speculative-eagle-topk to be at least 1, got 0.",
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8 --speculative-eagle-topk 2 --speculative-num-steps 0",
        "ValueError: UNO tree mode requires --speculative-num-steps to be positive, got 0.",
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 3 --speculative-eagle-topk 2 --speculative-num-steps 4",
        "ValueError: UNO tree mode requires Q >= F; got Q=3, F=5.",
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 200 --speculative-eagle-topk 2 --speculative-num-steps 4",
        "ValueError: UNO tree mode currently supports at most Q=128 verify nodes, got Q=200.",
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 128 --speculative-eagle-topk 20 --speculative-num-steps 4",
        "ValueError: UNO tree mode currently supports Q*K <= 2048; got Q*K=128*20=2560.",
    ),
    (
        "h200",
        (
            f"--tp-size 1 {UNO} --speculative-num-draft-tokens 7 --speculative-num-steps 3 "
            "--speculative-eagle-topk 3 --speculative-accept-threshold-acc 0.9"
        ),
        (
            "ValueError: UNO tree mode reuses EAGLE target-only sampling and requires both speculative accept "
            "thresholds to be 1.0."
        ),
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8 --lora-paths a=x",
        "ValueError: UNO does not support public Multi-LoRA serving.",
    ),
    (
        "h200",
        f"--tp-size 1 {UNO} --speculative-num-draft-tokens 8 --speculative-use-rejection-sampling",
        (
            "ValueError: UNO manages its own stochastic verification and does not use "
            "--speculative-use-rejection-sampling."
        ),
    ),
)
CAPTURE_IS_REFUSED = refusals(
    (
        "b300",
        "--return-aux-hidden-state-layer-ids 7",
        "ValueError: --return-aux-hidden-state-layer-ids requires --enable-return-aux-hidden-states.",
    ),
    (
        "b300",
        CAPTURE,
        (
            "ValueError: --enable-return-aux-hidden-states needs --speculative-algorithm EAGLE3, DFLASH or "
            "DSPARK to name the capture convention, got None."
        ),
    ),
    (
        "b300",
        f"{CAPTURE} {EAGLE3}",
        (
            "ValueError: --enable-return-aux-hidden-states captures without a draft; drop "
            "--speculative-draft-model-path."
        ),
    ),
    (
        "b300",
        f"{PIPELINE} {CAPTURE} --speculative-algorithm EAGLE3",
        (
            "ValueError: --enable-return-aux-hidden-states only supports pp_size == 1: the capture hooks only "
            "see the layers on the last pipeline rank."
        ),
    ),
    (
        "b300",
        f"{CAPTURE} --speculative-algorithm DSPARK",
        "ValueError: --enable-return-aux-hidden-states with DSPARK requires --return-aux-hidden-state-layer-ids.",
    ),
    (
        "b300",
        f"{CAPTURE} --speculative-algorithm DSPARK --return-aux-hidden-state-layer-ids -1",
        "ValueError: --return-aux-hidden-state-layer-ids must be non-negative, got [-1].",
    ),
    (
        "b300",
        f"{CAPTURE} --speculative-algorithm DSPARK --return-aux-hidden-state-layer-ids 7 7",
        "ValueError: --return-aux-hidden-state-layer-ids must not repeat a layer, got [7, 7].",
    ),
)
DIFFUSION_IS_REFUSED = refusals(
    ("b300", "--dllm-algorithm Fast", "RuntimeError: Unknown diffusion LLM algorithm: Fast"),
    ("b300", "--dllm-algorithm LowConfidence", "RuntimeError: Unknown diffusion LLM: KimiK3ForConditionalGeneration"),
    ("b300", "--dllm-algorithm Gemma4Renoise", "ValueError: DiffusionGemma does not support quantized loading"),
)


@pytest.mark.parametrize("case", **named(DSPARK_DEFAULTS))
def test_dspark_defaults(case: Case) -> None:
    """DSPARK verifies the block of its draft and one bonus token."""
    check(case)


@pytest.mark.parametrize("case", **named(DRAFT_TOKENS))
def test_draft_tokens(case: Case) -> None:
    """Steps, width and draft tokens of the block drafts, and the limit of 48 running requests."""
    check(case)


@pytest.mark.parametrize("case", **named(DRAFT_PATH))
def test_draft_path(case: Case) -> None:
    """A checkpoint may hold its own draft layer."""
    check(case)


@pytest.mark.parametrize("case", **named(BUNDLED_DSPARK))
def test_bundled_dspark(case: Case) -> None:
    """A checkpoint may carry a DSPARK draft."""
    check(case)


@pytest.mark.parametrize("case", **named(UNO_DRAFTS))
def test_uno_drafts(case: Case) -> None:
    """UNO drafts with the target itself, as a line or a tree, on one Hopper GPU."""
    check(case)


@pytest.mark.parametrize("case", **named(DRAFT_ATTENTION))
def test_draft_attention(case: Case) -> None:
    """The draft's own attention backend, per platform."""
    check(case)


@pytest.mark.parametrize("case", **named(DFLASH_ATTENTION_DP))
def test_dflash_attention_dp(case: Case) -> None:
    """DFLASH runs with attention DP and the DP LM head; Ascend needs none."""
    check(case)


@pytest.mark.parametrize("case", **named(TRTLLM_MHA_DRAFT))
def test_trtllm_mha_draft(case: Case) -> None:
    """trtllm_mha serves drafts that are causal or slide their window, and no other."""
    check(case)


@pytest.mark.parametrize("case", **named(DRAFT_WINDOW))
def test_draft_window(case: Case) -> None:
    """A compact draft cache keeps a sink and a window."""
    check(case)


@pytest.mark.parametrize("case", **named(MIXED_CHUNKS))
def test_mixed_chunks(case: Case) -> None:
    """Mixed chunks stay with drafts that resume from them."""
    check(case)


@pytest.mark.parametrize("case", **named(REJECTION_SAMPLING))
def test_rejection_sampling(case: Case) -> None:
    """ROCm samples EAGLE chains by rejection; block verification asks for it everywhere."""
    check(case)


@pytest.mark.parametrize("case", **named(ADAPTIVE))
def test_adaptive(case: Case) -> None:
    """Adaptive steps start in the middle, and fall back to fixed ones where they cannot run."""
    check(case)


@pytest.mark.parametrize("case", **named(HIDDEN_STATE_CAPTURE))
def test_hidden_state_capture(case: Case) -> None:
    """With capture of hidden states the algorithm is only a convention."""
    check(case)


@pytest.mark.parametrize("case", **named(DRAFT_IS_REFUSED))
def test_draft_is_refused(case: Case) -> None:
    """Algorithms and drafts that do not exist."""
    check(case)


@pytest.mark.parametrize("case", **named(BLOCK_IS_REFUSED))
def test_block_is_refused(case: Case) -> None:
    """Blocks, draft tokens and windows that do not fit."""
    check(case)


@pytest.mark.parametrize("case", **named(PARALLELISM_IS_REFUSED))
def test_parallelism_is_refused(case: Case) -> None:
    """Attention DP and pipelines with a block draft."""
    check(case)


@pytest.mark.parametrize("case", **named(VERIFY_LAYOUT_IS_REFUSED))
def test_verify_layout_is_refused(case: Case) -> None:
    """Verify layouts and prefill coordination."""
    check(case)


@pytest.mark.parametrize("case", **named(NGRAM_IS_REFUSED))
def test_ngram_is_refused(case: Case) -> None:
    """NGRAM trees, devices and corpora."""
    check(case)


@pytest.mark.parametrize("case", **named(EAGLE_IS_REFUSED))
def test_eagle_is_refused(case: Case) -> None:
    """Chains and trees; an unset width makes the engine itself fail."""
    check(case)


@pytest.mark.parametrize("case", **named(SAMPLING_IS_REFUSED))
def test_sampling_is_refused(case: Case) -> None:
    """Rejection sampling and block verification."""
    check(case)


@pytest.mark.parametrize("case", **named(UNO_IS_REFUSED))
def test_uno_is_refused(case: Case) -> None:
    """UNO drafts with the target itself, on one Hopper GPU."""
    check(case)


@pytest.mark.parametrize("case", **named(CAPTURE_IS_REFUSED))
def test_capture_is_refused(case: Case) -> None:
    """Capture of hidden states runs without a draft, on one pipeline stage."""
    check(case)


@pytest.mark.parametrize("case", **named(DIFFUSION_IS_REFUSED))
def test_diffusion_is_refused(case: Case) -> None:
    """Diffusion of a model that does not denoise."""
    check(case)


GEMMA = ModelConfig("google/gemma-4-assistant", {"architectures": ["Gemma4AssistantForCausalLM"]})


@pytest.mark.parametrize(
    ("written", "resolved"), [("NEXTN", "FROZEN_KV_MTP"), ("EAGLE", "FROZEN_KV_MTP"), ("STANDALONE", "STANDALONE")]
)
def test_an_assistant_draft_shares_the_targets_kv(written: str, resolved: str) -> None:
    assert with_draft(GEMMA, written)["speculative_algorithm"] == resolved


def test_an_assistant_draft_is_no_eagle3() -> None:
    assert with_draft(GEMMA, "EAGLE3").error == (
        "ValueError: Gemma4AssistantForCausalLM draft requires --speculative-algorithm NEXTN or EAGLE; EAGLE3 is "
        "not supported for this draft architecture."
    )


def with_draft(draft: ModelConfig, algorithm: str) -> Resolved:
    """What Kimi-K3 on eight B300 makes of an algorithm with another draft."""
    argv = ("--tp-size", "8", "--speculative-algorithm", algorithm, "--speculative-draft-model-path", draft.path)
    server = Server(argv, (), program=())
    return resolve(server, platform("b300"), model=known_config("moonshotai/Kimi-K3"), draft=draft)


BLOCKS = {
    "at the top": ({"block_size": 7}, 7),
    "in the DFLASH section, which wins": ({"block_size": 7, "dflash_config": {"block_size": 16}}, 16),
    "as text": ({"block_size": "7"}, 7),
    "absent": ({}, None),
    "of nothing": ({"block_size": 0}, None),
    "a word": ({"block_size": "wide"}, None),
    "in a section that is none": ({"dflash_config": 3}, None),
}


@pytest.mark.parametrize(("config", "size"), BLOCKS.values(), ids=BLOCKS)
def test_the_block_of_a_dflash_draft(config: dict[str, Any], size: int | None) -> None:
    assert block_size(config) == size


GAMMAS = {
    "the block": ({"block_size": 7, "markov_rank": 256, "markov_head_type": "vanilla"}, 7),
    "the bundled block, which wins": ({"block_size": 7, "dspark_block_size": 4, "dspark_markov_rank": 8}, 4),
    "without a Markov head": ({"block_size": 7}, 7),
    "with a head in a section": (
        {"block_size": 7, "dspark_config": {"markov_rank": 8, "markov_head_type": "RNN"}},
        7,
    ),
    "with a rank but no head": ({"block_size": 7, "markov_rank": 8}, None),
    "with an unknown head": ({"block_size": 7, "markov_rank": 8, "markov_head_type": "odd"}, None),
    "with a negative rank": ({"block_size": 7, "markov_rank": -1}, None),
    "with a rank that is a word": ({"block_size": 7, "markov_rank": "high"}, None),
}


@pytest.mark.parametrize(("config", "size"), GAMMAS.values(), ids=GAMMAS)
def test_the_block_of_a_dspark_draft(config: dict[str, Any], size: int | None) -> None:
    assert gamma(config) == size


LAYERS = {
    "sliding windows only": ({"layer_types": ["sliding_attention"] * 2, "num_hidden_layers": 2}, True),
    "one full layer": (
        {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2},
        False,
    ),
    "too few layers named": ({"layer_types": ["sliding_attention"], "num_hidden_layers": 2}, False),
    "a causal draft": ({"is_causal": True}, True),
    "a causal text section": ({"text_config": {"is_causal": True}}, True),
    "silence": ({}, False),
}


@pytest.mark.parametrize(("config", "serves"), LAYERS.values(), ids=LAYERS)
def test_which_drafts_trtllm_mha_serves(config: dict[str, Any], serves: bool) -> None:
    assert attends_locally_or_causally(config) is serves


def test_an_adaptive_config_file_is_not_read() -> None:
    with pytest.raises(UnusableInput, match="--speculative-adaptive-config is not modelled"):
        check(Case("b300", f"{EAGLE} --speculative-adaptive --speculative-adaptive-config steps.json"))
