"""What Kimi-K3 decides, and what the engine refuses while reading the model."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

KIMI_K3 = table(
    "prefill_attention_backend decode_attention_backend speculative_attention_mode "
    "moe_runner_backend speculative_draft_attention_backend",
    ("b300", "", "trtllm_mla", "trtllm_mla", "prefill", "flashinfer_mxfp4", None),
    ("h200", "", None, None, "prefill", "auto", None),
    ("mi355x", "", None, None, "prefill", "auto", None),
    ("b300", "DSPARK", "trtllm_mla", "trtllm_mla", "decode", "flashinfer_mxfp4", "trtllm_mha"),
    ("b300", "--dcp-size 8 DSPARK", "trtllm_mla", "cutedsl_mla", "decode", "flashinfer_mxfp4", "trtllm_mha"),
    ("b300", "--decode-attention-backend triton DSPARK", None, "triton", "prefill", "flashinfer_mxfp4", "trtllm_mha"),
    (
        "b300",
        "--decode-attention-backend cutedsl_mla DSPARK",
        "trtllm_mla",
        "cutedsl_mla",
        "decode",
        "flashinfer_mxfp4",
        "trtllm_mha",
    ),
    ("h200", "DSPARK", None, None, "prefill", "auto", None),
)

DCP = table(
    "prefill_attention_backend decode_attention_backend dcp_comm_backend dcp_replicate_q_proj enable_symm_mem",
    ("b300", "--dcp-size 8", "trtllm_mla", "cutedsl_mla", "fi_a2a", True, False),
    ("b300", "--dcp-size 8 --enable-symm-mem", "trtllm_mla", "cutedsl_mla", "fi_a2a", True, False),
    ("b300", "--dcp-size 8 --prefill-attention-backend fa3", "trtllm_mla", "cutedsl_mla", "fi_a2a", True, False),
    ("mi355x", "--dcp-size 8 --attention-backend aiter", "aiter", "aiter", "a2a", True, False),
    (
        "mi355x",
        "--dcp-size 8 --decode-attention-backend aiter --prefill-attention-backend triton",
        "triton",
        "aiter",
        "a2a",
        True,
        False,
    ),
)

OTHER = table(
    "flashinfer_allreduce_fusion_backend disable_overlap_schedule",
    ("b300", "--enforce-disable-flashinfer-allreduce-fusion --flashinfer-allreduce-fusion-backend auto", None, False),
    ("b300", "SGLANG_EMBEDDINGS_SPARSE_HEAD=x ", None, True),
)

READ = table(
    "quantization context_length",
    ("b300", "--quantization compressed-tensors", "compressed-tensors", None),
    ("b300", "--quantization humming", "humming", None),
    ("b300", "--quantization w8a8_fp8", "w8a8_fp8", None),
    ("b300", "--quantization quark_mxfp4", "quark_mxfp4", None),
    ("b300", "--quantization unquant", None, None),
    ("b300", "--context-length 4096", None, 4096),
    ("b300", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 --context-length 2000000", None, 2000000),
    ("b300", "--json-model-override-args []", None, None),
)

REFUSED = refusals(
    (
        "mi355x",
        "--dcp-size 8",
        "ValueError: CuteDSL MLA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",
    ),
    (
        "h200",
        "--dcp-size 8",
        "ValueError: CuteDSL MLA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",
    ),
    (
        "a3",
        "--dcp-size 8",
        "ValueError: NPU decode context parallelism is currently implemented only for "
        "DeepSeek DSA models; got KimiK3ForConditionalGeneration. Set "
        "--decode-context-parallel-size=1 or use a DSA model.",
    ),
    (
        "mi355x",
        "SGLANG_AITER_MLA_GLUON=0 --dcp-size 8 --decode-attention-backend aiter",
        "RuntimeError: Kimi-K3 DCP with decode_attention_backend='aiter' requires the aiter "
        "gluon mla kernel, which is unavailable. See above aborting reasons.",
    ),
    (
        "b300",
        "--dcp-size 8 --attention-backend trtllm_mla",
        "AssertionError: Decode attention backend for Kimi-K3 DCP must be 'cutedsl_mla' or 'aiter', got 'trtllm_mla'.",
    ),
    (
        "b300",
        "SGLANG_RAGGED_VERIFY_MODE=compact --dcp-size 8 DSPARK",
        "ValueError: Kimi-K3 DCP + DSPARK currently requires "
        "SGLANG_RAGGED_VERIFY_MODE=static; compact/cap-accept are not validated under DCP "
        "(got 'compact').",
    ),
    (
        "b300",
        "SGLANG_RAGGED_VERIFY_MODE=zzz --dcp-size 8 DSPARK",
        "ValueError: invalid SGLANG_RAGGED_VERIFY_MODE='zzz'; expected one of 'static', 'cap-accept', 'compact'",
    ),
    (
        "b300",
        "--enable-cp-decode-attn-tp",
        "ValueError: --enable-cp-decode-attn-tp is only supported for models whose attention "
        "linears are replicated across CP ranks (attn_tp_size=1). Got "
        "KimiK3ForConditionalGeneration; supported: ['DeepseekV4ForCausalLM', "
        "'DeepseekV4ForCausalLMDSpark', 'DeepseekV4ForCausalLMNextN', "
        "'GlmMoeDsaForCausalLM', 'GlmMoeDsaForCausalLMNextN'].",
    ),
    (
        "b300",
        "--enable-dsa-cache-layer-split",
        "ValueError: --enable-dsa-cache-layer-split is only supported for DSA (DeepSeek Sparse Attention) models.",
    ),
    (
        "b300",
        "--enable-encoder-swa-bounded-replay",
        "ValueError: --enable-encoder-swa-bounded-replay requires DeepSeek-V4.1",
    ),
    (
        "b300",
        "--quantization fp8",
        "ValueError: Quantization method specified in the model config (compressed-tensors) "
        "does not match the quantization method specified in the `quantization` argument "
        "(fp8).",
    ),
    (
        "b300",
        "--quantization modelopt_fp4",
        "ValueError: Quantization method specified in the model config (compressed-tensors) "
        "does not match the quantization method specified in the `quantization` argument "
        "(modelopt_fp4).",
    ),
    (
        "b300",
        "--context-length 2000000",
        "ValueError: Warning: User-specified context_length (2000000) is greater than the "
        "derived context_length (1048576). This may lead to incorrect model outputs or CUDA "
        "errors. Note that the derived context_length may differ from "
        "max_position_embeddings in the model's config. To allow overriding this maximum, "
        "set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    ),
    (
        "b300",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=zzz --context-length 2000000",
        "ValueError: Warning: User-specified context_length (2000000) is greater than the "
        "derived context_length (1048576). This may lead to incorrect model outputs or CUDA "
        "errors. Note that the derived context_length may differ from "
        "max_position_embeddings in the model's config. To allow overriding this maximum, "
        "set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    ),
    (
        "b300",
        "--quantize-and-serve",
        "ValueError: quantize_and_serve requires ModelOpt quantization (set with "
        "--quantization {modelopt, modelopt_fp4, modelopt_fp8, modelopt_mixed, "
        "nvfp4_online})",
    ),
    (
        "b300",
        "--quantize-and-serve --quantization modelopt_fp8",
        "NotImplementedError: quantize_and_serve functionality is currently disabled due to "
        "compatibility issues. Please use the separate quantize-then-deploy workflow "
        "instead. Step 1: Quantize and export model. Step 2: Deploy the exported model.",
    ),
    (
        "b300",
        "--json-model-override-args zzz",
        "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ),
    (
        "b300",
        "--json-model-override-args [1]",
        "AttributeError: 'list' object has no attribute 'items'",
    ),
    (
        "mi355x",
        "--quantization humming",
        "ValueError: humming quantization is currently not supported in ROCm.",
    ),
    (
        "a3",
        "--quantization moe_wna16",
        'NotImplementedError: NPU hardware does not support "get_min_capability" feature.',
    ),
)


@pytest.mark.parametrize("case", **named(KIMI_K3 + DCP + OTHER + READ))
def test_settled(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named(REFUSED))
def test_refused(case: Case) -> None:
    check(case)
