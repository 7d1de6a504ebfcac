"""Attention, sampling and linear-attention backends, pages, deterministic inference."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

BACKENDS = table(
    "attention_backend prefill_attention_backend decode_attention_backend page_size",
    ("b300", "", "trtllm_mla", "trtllm_mla", "trtllm_mla", 64),
    ("h200", "", "fa3", None, None, 1),
    ("mi355x", "", "triton", None, None, 1),
    ("a3", "", "ascend", "ascend", "ascend", 128),
    ("b300", "--attention-backend triton", "triton", None, None, 1),
    ("b300", "--attention-backend flashmla", "flashmla", None, None, 64),
    ("b300", "--attention-backend trtllm_mla", "trtllm_mla", None, None, 64),
    ("b300", "--attention-backend cutedsl_mla", "cutedsl_mla", "trtllm_mla", None, 64),
    ("b300", "--attention-backend trtllm_mha", "trtllm_mha", None, None, 64),
    ("b300", "--attention-backend fa4", "fa4", None, None, 1),
    ("b300", "--attention-backend intel_xpu", "intel_xpu", None, None, 128),
    ("b300", "--attention-backend hpc_ops", "hpc_ops", None, None, 64),
    ("b300", "--prefill-attention-backend fa3", "flashinfer", "fa3", None, 1),
    ("b300", "--decode-attention-backend cutedsl_mla", "flashinfer", "trtllm_mla", "cutedsl_mla", 64),
    (
        "b300",
        "--prefill-attention-backend fa3 --decode-attention-backend fa3 --attention-backend triton",
        "fa3",
        "fa3",
        "fa3",
        1,
    ),
    ("b300", "--page-size 32", "trtllm_mla", "trtllm_mla", "trtllm_mla", 32),
    ("b300", "--page-size 1", "trtllm_mla", "trtllm_mla", "trtllm_mla", 64),
    ("b300", "--page-size 1 --attention-backend triton", "triton", None, None, 1),
    ("b300", "--kv-cache-dtype fp8_e5m2 --attention-backend fa3", "triton", None, None, 1),
    ("h200", "--attention-backend flashmla", "flashmla", None, None, 64),
    ("h200", "--attention-backend trtllm_mha", "trtllm_mha", None, None, 64),
    ("h200", "--page-size 64", "fa3", None, None, 64),
    ("mi355x", "SGLANG_AITER_KV_CACHE_LAYOUT=vectorized_5d ", "triton", None, None, 64),
)

SAMPLING = table(
    "sampling_backend",
    ("b300", "", "flashinfer"),
    ("mi355x", "", "pytorch"),
    ("a3", "", "pytorch"),
    ("b300", "--sampling-backend pytorch", "pytorch"),
)

AITER = table(
    "mem_fraction_static",
    ("mi355x", "", 0.8518175),
    ("mi355x", "--attention-backend aiter", 0.724044875),
    ("mi355x", "SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION=1 --attention-backend aiter", 0.724044875),
    ("mi355x", "SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION=1 --attention-backend aiter --mem-fraction-static 0.9", 0.9),
    ("mi355x", "--attention-backend aiter --context-length 8192", 0.8518175),
)

WITHOUT_GRAPHS = table(
    "decode.backend prefill.backend disable_radix_cache chunked_prefill_size",
    ("b300", "--attention-backend torch_native", "disabled", "disabled", False, 16384),
    ("b300", "--attention-backend flex_attention", "disabled", "disabled", False, 16384),
    ("b300", "--enable-mis --attention-backend flashinfer", "disabled", "disabled", True, -1),
)

DETERMINISTIC = table(
    "attention_backend sampling_backend disable_radix_cache disable_custom_all_reduce "
    "enable_torch_symm_mem enable_deterministic_inference",
    ("b300", "--enable-deterministic-inference", "trtllm_mla", "pytorch", True, True, False, True),
    ("h200", "--enable-deterministic-inference", "fa3", "pytorch", False, True, False, True),
    ("mi355x", "--enable-deterministic-inference", "fa3", "pytorch", False, False, False, True),
    ("a3", "--enable-deterministic-inference", "ascend", "pytorch", False, True, False, True),
    (
        "b300",
        "--enable-deterministic-inference --attention-backend triton",
        "triton",
        "pytorch",
        False,
        True,
        False,
        True,
    ),
    ("b300", "--rl-on-policy-target fsdp", "trtllm_mla", "pytorch", True, True, False, True),
)

LINEAR = table(
    "linear_attn_decode_backend linear_attn_verify_backend mamba_ssm_dtype",
    ("b300", "", None, None, None),
    ("b300", "DSPARK", None, "nv_cutedsl", None),
    ("b300", "--mamba-ssm-dtype bfloat16", "triton", None, "bfloat16"),
    ("b300", "--linear-attn-backend flashkda", "triton", None, None),
    ("b300", "--linear-attn-decode-backend flashinfer --mamba-ssm-dtype bfloat16", "flashinfer", None, "bfloat16"),
    ("b300", "--enable-linear-replayssm-spec", None, None, "float32"),
    ("b300", "--enable-linear-replayssm --disable-radix-cache", None, None, None),
    ("h200", "DSPARK", None, "nv_cutedsl", None),
    ("h200", "--linear-attn-decode-backend flashinfer", "flashinfer", None, None),
    ("b300", "SGLANG_RAGGED_VERIFY_MODE=compact DSPARK --enable-linear-replayssm-spec", None, "nv_cutedsl", "float32"),
    (
        "b300",
        "SGLANG_ENABLE_PP_SPEC=1 DSPARK --mamba-ssm-dtype bfloat16 --linear-attn-verify-backend flashinfer",
        "triton",
        "triton",
        "bfloat16",
    ),
)

REFUSED = refusals(
    (
        "b300",
        "--prefill-attention-backend cutedsl_mla",
        "AssertionError: CuteDSL MLA only supports decoding for now",
    ),
    (
        "b300",
        "--kv-cache-dtype fp8_e5m2",
        "ValueError: TensorRT-LLM MLA backend only supports kv-cache-dtype of fp8_e4m3, bf16, or auto.",
    ),
    (
        "b300",
        "--enable-mis",
        "AssertionError: Multi-item scoring requires flashinfer attention backend for custom "
        "attention mask support. Please set --attention-backend flashinfer when using "
        "--enable-mis. Current backends: prefill=trtllm_mla, decode=trtllm_mla",
    ),
    (
        "b300",
        "--enable-deterministic-inference --attention-backend trtllm_mla",
        "ValueError: Currently only ['ascend', 'fa3', 'fa4', 'flashinfer', 'intel_xpu', "
        "'triton'] attention backends are supported for deterministic inference, but you "
        "explicitly specified 'trtllm_mla'.",
    ),
    (
        "b300",
        "--linear-attn-decode-backend flashkda",
        "ValueError: --linear-attn-decode-backend flashkda is not supported: FlashKDA is "
        "prefill-only. Use --linear-attn-prefill-backend flashkda (decode stays on triton).",
    ),
    (
        "b300",
        "--linear-attn-decode-backend flashinfer",
        "ValueError: --linear-attn-decode-backend flashinfer on SM100+ requires --mamba-ssm-dtype bfloat16, got None",
    ),
    (
        "b300",
        "--linear-attn-verify-backend flashinfer",
        "ValueError: --linear-attn-verify-backend flashinfer on SM100+ requires --mamba-ssm-dtype bfloat16, got None",
    ),
    (
        "b300",
        "--enable-linear-replayssm",
        "ValueError: --enable-linear-replayssm requires --mamba-radix-cache-strategy "
        "no_buffer (the default); the extra_buffer ping-pong donation path is not yet "
        "supported (follow-up). Got --mamba-radix-cache-strategy='extra_buffer'.",
    ),
    (
        "b300",
        "--enable-linear-replayssm --disable-radix-cache --linear-replayssm-cache-len 0",
        "ValueError: --linear-replayssm-cache-len must be >= 1, got 0.",
    ),
    (
        "b300",
        "--enable-linear-replayssm --disable-radix-cache --linear-attn-decode-backend cutedsl",
        "ValueError: --enable-linear-replayssm requires Triton, or Helion for KDA, as the "
        "linear-attn decode backend; got --linear-attn-decode-backend='cutedsl'.",
    ),
    (
        "b300",
        "--disaggregation-mode decode --enable-linear-replayssm",
        "ValueError: --enable-linear-replayssm is not supported under PD disaggregation yet "
        "(follow-up). Got --disaggregation-mode='decode'.",
    ),
    (
        "b300",
        "--enable-linear-replayssm-spec --enable-linear-replayssm --disable-radix-cache",
        "ValueError: --enable-linear-replayssm-spec and --enable-linear-replayssm are "
        "mutually exclusive: they share the ring storage but drive it with incompatible "
        "cursor protocols (per-decode-forward vs per-verify-commit advance).",
    ),
    (
        "b300",
        "--enable-linear-replayssm-spec --linear-attn-decode-backend cutedsl",
        "ValueError: --enable-linear-replayssm-spec requires the triton or flashinfer "
        "linear-attn decode backend, got --linear-attn-decode-backend='cutedsl'.",
    ),
    (
        "b300",
        "--enable-linear-replayssm-spec --speculative-eagle-topk 2",
        "ValueError: --enable-linear-replayssm-spec requires a linear draft chain "
        "(--speculative-eagle-topk in {None, 1}); the chunked verify kernel uses a "
        "strictly-lower causal mask and is invalid for EAGLE tree verify. Got "
        "--speculative-eagle-topk=2.",
    ),
    (
        "b300",
        "--disaggregation-mode prefill DSPARK --enable-linear-replayssm-spec",
        "ValueError: --enable-linear-replayssm-spec is not supported on a PD prefill server: "
        "the ring is spec-verify-only scratch and the prefill server never runs spec verify.",
    ),
    (
        "b300",
        "SGLANG_RAGGED_VERIFY_MODE=compact DSPARK --enable-linear-replayssm-spec "
        "--linear-attn-verify-backend flashinfer --mamba-ssm-dtype bfloat16",
        "ValueError: --enable-linear-replayssm-spec with SGLANG_RAGGED_VERIFY_MODE=compact "
        "requires the KDA fold-every-commit family (DSPARK/DFLASH) and a ring-writing verify "
        "kernel (--linear-attn-verify-backend triton or nv_cutedsl); got algorithm='DSPARK', "
        "verify='flashinfer'. Use SGLANG_RAGGED_VERIFY_MODE=static.",
    ),
    (
        "h200",
        "--attention-backend trtllm_mla",
        "ValueError: TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). "
        "Please use a different backend.",
    ),
    (
        "h200",
        "--attention-backend cutedsl_mla",
        "ValueError: CuteDSL MLA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",
    ),
    (
        "mi355x",
        "--attention-backend trtllm_mha",
        "ValueError: TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell "
        "(SM100), or SM120 GPUs. Please use a different prefill backend.",
    ),
    (
        "mi355x",
        "--enable-deterministic-inference --disable-custom-all-reduce",
        "ValueError: --disable-custom-all-reduce cannot be combined with "
        "--enable-deterministic-inference on ROCm when --tp-size is above 2: the all-reduce "
        "would run through RCCL, which is not batch-invariant.",
    ),
)


ACCEPTED = [*BACKENDS, *SAMPLING, *AITER, *WITHOUT_GRAPHS, *DETERMINISTIC, *LINEAR]


@pytest.mark.parametrize("case", **named(ACCEPTED))
def test_settled(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named(REFUSED))
def test_refused(case: Case) -> None:
    check(case)
