"""MoE runners, expert all-to-alls and their token budgets."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, outcome, refusals

DEEPSEEK = "--model-path deepseek-ai/DeepSeek-V3"
GLM = "--model-path zai-org/GLM-5.3-Flash"
LLAMA = "--model-path meta-llama/Llama-3.3-70B-Instruct"
NEMOTRON = "--model-path nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
QWEN3_NEXT = "--model-path Qwen/Qwen3-Next-80B-A3B-Instruct"
FLASHINFER = "--attn-dp-size 8 --moe-a2a-backend flashinfer"
FLYDSL = "SGLANG_AMD_USE_FLYDSL_MEGA_MOE=1 SGLANG_AMD_FLYDSL_MEGA_MOE_DECODE_MTPR=256"
MARLIN = "--moe-runner-backend experimental_sgl_marlin --enable-lora --max-lora-rank 8 --lora-target-modules all"
MEGAMOE = "--attn-dp-size 8 --moe-a2a-backend flashinfer_megamoe"

RUNNERS = [
    Case(
        "b300",
        "--moe-runner-backend flashinfer_trtllm",
        {"moe_runner_backend": "flashinfer_trtllm", "disable_shared_experts_fusion": True},
    ),
    Case(
        "b300",
        "--moe-runner-backend flashinfer_trtllm_routed",
        {"moe_runner_backend": "flashinfer_trtllm_routed", "disable_shared_experts_fusion": True},
    ),
    Case(
        "b300",
        "--moe-runner-backend deep_gemm",
        {"moe_runner_backend": "deep_gemm", "disable_shared_experts_fusion": False},
    ),
    Case(
        "b300",
        "--moe-runner-backend megamoe",
        {"moe_runner_backend": "flashinfer_mxfp4", "moe_a2a_backend": "megamoe", "ep_size": 8},
    ),
    Case(
        "b300",
        "--moe-runner-backend megamoe --moe-a2a-backend deepep",
        {"moe_runner_backend": "flashinfer_mxfp4", "moe_a2a_backend": "megamoe"},
    ),
    Case("b300", f"{QWEN3_NEXT} --quantization mxfp8", {"moe_runner_backend": "flashinfer_trtllm"}),
    Case(
        "b300",
        f"{QWEN3_NEXT} --quantization mxfp8 --moe-runner-backend flashinfer_cutedsl",
        {"moe_runner_backend": "flashinfer_trtllm"},
    ),
    Case("mi355x", f"{QWEN3_NEXT} --quantization mxfp8", {"moe_runner_backend": "triton"}),
    Case("mi355x", f"{QWEN3_NEXT} --quantization mxfp8 --moe-runner-backend aiter", {"moe_runner_backend": "aiter"}),
    Case(
        "mi355x",
        f"SGLANG_USE_AITER=0 {QWEN3_NEXT} --quantization mxfp8 --moe-runner-backend aiter",
        {"moe_runner_backend": "triton"},
    ),
    Case("a3", f"{QWEN3_NEXT} --quantization mxfp8", {"moe_runner_backend": "auto"}),
    Case(
        "b300",
        f"{QWEN3_NEXT} --quantization nvfp4_online",
        {"moe_runner_backend": "flashinfer_trtllm", "disable_shared_experts_fusion": True},
    ),
    Case(
        "b300",
        f"SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1 {NEMOTRON} --quantization nvfp4_online "
        "--moe-a2a-backend flashinfer_megamoe --attn-dp-size 8",
        {"moe_runner_backend": "flashinfer_megamoe", "speculative_moe_runner_backend": "flashinfer_trtllm"},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} --quantization unquant",
        {"quantization": None, "moe_runner_backend": "flashinfer_trtllm"},
    ),
]

EXCHANGES = [
    Case("b300", "--moe-a2a-backend deepep", {"ep_size": 8}),
    Case("b300", "--moe-a2a-backend mooncake", {"ep_size": 8}),
    Case("b300", "--moe-a2a-backend megamoe", {"ep_size": 8, "moe_runner_backend": "flashinfer_mxfp4"}),
    Case("b300", "--moe-a2a-backend ascend_tp", {"moe_a2a_backend": "none"}),
    Case("a3", "--moe-a2a-backend ascend_tp", {"moe_a2a_backend": "none", "ep_size": 1}),
    Case(
        "b300", "--enable-waterfill", {"moe_a2a_backend": "deepep", "ep_size": 8, "enforce_shared_experts_fusion": True}
    ),
    Case(
        "b300",
        "--enable-waterfill --disable-shared-experts-fusion",
        {"disable_shared_experts_fusion": False, "enforce_shared_experts_fusion": True},
    ),
    Case(
        "b300",
        "--moe-a2a-backend deepep --deepep-mode normal",
        {"decode.backend": "disabled", "prefill.backend": "disabled"},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} --quantization modelopt_fp4 --moe-runner-backend flashinfer_cutedsl --moe-a2a-backend deepep",
        {"deepep_mode": "low_latency"},
    ),
    Case("b300", "--moe-a2a-backend mori --chunked-prefill-size 4096", {"deepep_mode": "normal"}),
    Case(
        "b300",
        "--moe-a2a-backend mori --deepep-mode low_latency --chunked-prefill-size 2048",
        {"deepep_mode": "low_latency"},
    ),
    Case(
        "mi355x",
        "SGLANG_MORI_EP_V2=1 --moe-a2a-backend mori --chunked-prefill-size 4096 --deepep-mode low_latency",
        {"deepep_mode": "normal"},
    ),
    Case(
        "b300",
        "--moe-a2a-backend pplx --attn-dp-size 8 --chunked-prefill-size 1024 --moe-runner-backend deep_gemm",
        {"deepep_mode": "low_latency", "moe_runner_backend": "deep_gemm"},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --moe-runner-backend flashinfer_trtllm",
        {"moe_runner_backend": "flashinfer_trtllm", "ep_size": 8, "disable_shared_experts_fusion": True},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --moe-runner-backend flashinfer_trtllm --flashinfer-a2a-dispatch-type bf16",
        {"moe_runner_backend": "flashinfer_trtllm_routed", "flashinfer_a2a_dispatch_type": "bf16"},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --moe-runner-backend flashinfer_trtllm --flashinfer-a2a-dispatch-type auto",
        {"moe_runner_backend": "flashinfer_trtllm_routed", "flashinfer_a2a_dispatch_type": "bf16"},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --quantization mxfp8 --flashinfer-a2a-dispatch-type auto",
        {"moe_runner_backend": "flashinfer_trtllm_routed", "flashinfer_a2a_dispatch_type": "mxfp8"},
    ),
    Case(
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --quantization modelopt_fp4 --moe-runner-backend "
        "flashinfer_cutlass --flashinfer-a2a-dispatch-type auto",
        {"flashinfer_a2a_dispatch_type": "nvfp4"},
    ),
    Case(
        "b300", f"{NEMOTRON} {MEGAMOE} --quantization mxfp8", {"moe_runner_backend": "flashinfer_megamoe", "ep_size": 8}
    ),
    Case(
        "b300",
        f"{DEEPSEEK} --moe-a2a-backend deepep_v2 --chunked-prefill-size 1024 --cuda-graph-max-bs-decode 64",
        {
            "moe_runner_backend": "deep_gemm",
            "ep_size": 8,
            "disable_shared_experts_fusion": True,
            "prefill.backend": "disabled",
        },
    ),
    Case(
        "b300",
        "DSPARK --speculative-num-draft-tokens 8",
        {"boundary_reduction": "ar", "speculative_boundary_reduction": "ar"},
    ),
    Case("b300", "--boundary-reduction ar", {"boundary_reduction": "ar", "speculative_boundary_reduction": "ar"}),
    Case("b300", f"{LLAMA}", {"boundary_reduction": "rs+rsv"}),
    Case("b300", f"{QWEN3_NEXT}", {"boundary_reduction": "rs+rsv"}),
    Case(
        "b300",
        f"{MARLIN} --lora-use-virtual-experts --lora-backend triton --ep-size 8",
        {"moe_runner_backend": "experimental_sgl_marlin", "ep_size": 8},
    ),
]

REFUSED_RUNNERS = refusals(
    (
        "b300",
        f"{QWEN3_NEXT} --ep-size 4 --moe-runner-backend flashinfer_cutlass",
        "AssertionError: The expert parallel size must be 1 or the same as the tensor parallel size",
    ),
    (
        "b300",
        "--moe-runner-backend flashinfer_cutedsl",
        "AssertionError: Invalid quantization 'None'. \nFlashInfer CuteDSL MOE currently supports "
        "only: 'modelopt_fp4', 'modelopt_mixed' (with NVFP4 MoE layers), 'nvfp4_online', or hybrid "
        "NVFP4 models.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --quantization fp8 --moe-runner-backend cutlass --ep-size 8",
        "AssertionError: FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --quantization nvfp4_online --moe-runner-backend cutlass --ep-size 8",
        "ValueError: --quantization nvfp4_online supports only --moe-runner-backend "
        "flashinfer_trtllm or flashinfer_trtllm_routed, or flashinfer_cutedsl; flashinfer_megamoe "
        "requires --moe-a2a-backend flashinfer_megamoe and SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1.",
    ),
    (
        "h200",
        f"{QWEN3_NEXT} --quantization nvfp4_online --moe-runner-backend flashinfer_trtllm_routed",
        "ValueError: --quantization nvfp4_online is supported only on NVIDIA Blackwell SM100/SM103 GPUs.",
    ),
    (
        "h200",
        f"{QWEN3_NEXT} --quantization modelopt_fp8 --moe-runner-backend flashinfer_trtllm_routed",
        "AssertionError: Invalid quantization 'modelopt_fp8'. \nFlashInfer TRTLLM routed MOE "
        "supports only: 'fp8', 'mxfp8', 'modelopt_fp4', 'modelopt_mixed', 'nvfp4_online', "
        "'minimax_m3_nvfp4', or bfloat16 (None).",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --quantization nvfp4_online --moe-runner-backend flashinfer_cutedsl --moe-a2a-backend deepep",
        "ValueError: flashinfer_cutedsl per-token NVFP4 activation requires moe_a2a_backend='none' or 'flashinfer'.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --quantization modelopt_fp4 --moe-runner-backend flashinfer_cutedsl "
        "--moe-a2a-backend deepep --deepep-mode normal",
        "ValueError: flashinfer_cutedsl FP4 MoE only "
        "supports DeepEP low_latency dispatch (masked layout). DeepEP normal (prefill) dispatch has no "
        "CuteDSL FP4 handler. Pass --deepep-mode low_latency or auto.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --quantization modelopt_fp4 --moe-runner-backend flashinfer_cutedsl --moe-a2a-backend mooncake",
        "AssertionError: flashinfer_cutedsl supports moe_a2a_backend='none', "
        "'deepep', or 'flashinfer', got 'mooncake'.",
    ),
    (
        "b300",
        f"SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION=1 {QWEN3_NEXT} --quantization modelopt_fp4 "
        "--moe-runner-backend flashinfer_cutedsl --moe-a2a-backend deepep",
        "ValueError: flashinfer_cutedsl per-token NVFP4 activation requires moe_a2a_backend='none' or 'flashinfer'.",
    ),
    ("b300", f"{MARLIN}", "ValueError: experimental_sgl_marlin LoRA requires --lora-use-virtual-experts"),
    (
        "b300",
        f"{MARLIN} --lora-use-virtual-experts --lora-backend triton --ep-size 8 --enable-eplb",
        "ValueError: experimental_sgl_marlin EP requires trivial expert placement without "
        "redundancy, EPLB, or elastic EP",
    ),
    (
        "b300",
        "--moe-runner-backend experimental_sgl_marlin --moe-a2a-backend deepep",
        "ValueError: experimental_sgl_marlin EP requires --moe-a2a-backend none",
    ),
)

REFUSED_EXCHANGES = refusals(
    (
        "b300",
        "--moe-a2a-backend mori",
        "AssertionError: SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 4096) must be >= the "
        "per-rank MoRI dispatch tokens (chunked_prefill_size by default)",
    ),
    (
        "b300",
        "--moe-a2a-backend pplx",
        "AssertionError: moe_a2a_backend='pplx' requires attention DP with at least 2 groups (--attn-dp-size >= 2).",
    ),
    (
        "b300",
        "--attn-dp-size 8 --moe-a2a-backend pplx",
        "AssertionError: moe_a2a_backend='pplx' is only supported with --moe-runner-backend deep_gemm (or auto).",
    ),
    (
        "mi355x",
        "--attn-dp-size 8 --moe-a2a-backend pplx",
        "AssertionError: SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 128) must be >= the "
        "per-rank pplx dispatch tokens (chunked_prefill_size, or the decode cuda-graph batch size)",
    ),
    (
        "a3",
        "--moe-a2a-backend megamoe",
        "ValueError: --moe-a2a-backend megamoe needs a CUDA SM90 GPU (block-FP8 experts) or an "
        "SM100-class GPU (MXFP4 / NVFP4 experts); it runs DeepGEMM kernels over CUDA symmetric "
        "memory. On ROCm, set SGLANG_AMD_USE_FLYDSL_MEGA_MOE=1 to select aiter MegaMoEv2 instead.",
    ),
    (
        "b300",
        "--moe-a2a-backend flashinfer",
        "AssertionError: Flashinfer MoE A2A requires --attn-dp-size equal to --tp-size, except for "
        "Muse Spark TP4/EP4 or TP8/EP8 prefill sequence parallelism.",
    ),
    (
        "b300",
        f"{FLASHINFER}",
        "AssertionError: FlashInfer MoE A2A is supported with flashinfer_cutlass, "
        "flashinfer_cutedsl, flashinfer_trtllm, flashinfer_trtllm_routed, or deep_gemm.",
    ),
    (
        "b300",
        f"{MEGAMOE}",
        "ValueError: FlashInfer MegaMOE currently supports only MXFP8, ModelOpt NVFP4, FP4-expert, "
        "hybrid NVFP4 MoE checkpoints, or nvfp4_online with SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1; "
        "got quantization=None. Standard FP8 MoE checkpoints are not supported.",
    ),
    (
        "b300",
        "--moe-a2a-backend deepep_v2",
        "ValueError: DeepEP v2 MoE is not validated for 'KimiK3ForConditionalGeneration'. The model "
        "package must register its architecture with register_deepep_v2_model, because its combine "
        "and post-expert reduction semantics must be validated first.",
    ),
    (
        "b300",
        "--flashinfer-a2a-dispatch-type bf16",
        "ValueError: --flashinfer-a2a-dispatch-type requires --moe-a2a-backend flashinfer.",
    ),
    (
        "b300",
        "--moe-a2a-backend pplx --attn-dp-size 8 --deepep-mode normal",
        "ValueError: moe_a2a_backend='pplx' only supports low-latency mode; set --deepep-mode to "
        "'low_latency' or 'auto'.",
    ),
    (
        "b300",
        "--moe-a2a-backend megamoe --enable-two-batch-overlap",
        "ValueError: --moe-a2a-backend megamoe has no two-batch / single-batch overlap "
        "decomposition; disable --enable-two-batch-overlap and --enable-single-batch-overlap.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --moe-runner-backend flashinfer_trtllm --flashinfer-a2a-dispatch-type mxfp8",
        "ValueError: --flashinfer-a2a-dispatch-type mxfp8 requires --quantization mxfp8.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --moe-runner-backend flashinfer_trtllm --flashinfer-a2a-dispatch-type nvfp4",
        "ValueError: --flashinfer-a2a-dispatch-type nvfp4 requires "
        "NVFP4/modelopt-FP4 quantization or hybrid NVFP4 MoE metadata.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --quantization mxfp8 --moe-runner-backend deep_gemm "
        "--flashinfer-a2a-dispatch-type mxfp8",
        "ValueError: --flashinfer-a2a-dispatch-type mxfp8 requires --moe-runner-backend flashinfer_trtllm_routed.",
    ),
    (
        "b300",
        f"SGLANG_MOE_NVFP4_DISPATCH=0 {QWEN3_NEXT} {FLASHINFER} --moe-runner-backend "
        "flashinfer_cutlass --flashinfer-a2a-dispatch-type bf16",
        "ValueError: SGLANG_MOE_NVFP4_DISPATCH cannot be set together with --flashinfer-a2a-dispatch-type.",
    ),
    (
        "b300",
        f"SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1 SGLANG_MOE_NVFP4_DISPATCH=1 {QWEN3_NEXT} "
        f"{FLASHINFER} --quantization modelopt_fp4 --moe-runner-backend flashinfer_cutedsl",
        "ValueError: CuTe DSL NVFP4 W4A16 requires BF16 FlashInfer MoE dispatch; unset SGLANG_MOE_NVFP4_DISPATCH.",
    ),
    (
        "b300",
        f"SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1 {QWEN3_NEXT} {FLASHINFER} --quantization "
        "modelopt_fp4 --moe-runner-backend flashinfer_cutedsl --flashinfer-a2a-dispatch-type auto",
        "ValueError: CuTe DSL NVFP4 W4A16 requires --flashinfer-a2a-dispatch-type bf16.",
    ),
    (
        "b300",
        f"{NEMOTRON} {MEGAMOE} --quantization fp8",
        "ValueError: FlashInfer MegaMOE currently supports only MXFP8, ModelOpt NVFP4, FP4-expert, "
        "hybrid NVFP4 MoE checkpoints, or nvfp4_online with SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1; "
        "got quantization='fp8'. Standard FP8 MoE checkpoints are not supported.",
    ),
    (
        "b300",
        f"{NEMOTRON} --moe-a2a-backend flashinfer_megamoe --quantization modelopt_fp4",
        "AssertionError: FlashInfer MegaMOE is only supported with --attn-dp-size equal to --tp-size",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} {MEGAMOE}",
        "ValueError: FlashInfer MegaMOE is not validated for model architectures "
        "['Qwen3NextForCausalLM']. Supported architectures: ['BeamForCausalLM', "
        "'DeepseekV2ForCausalLM', 'DeepseekV32ForCausalLM', 'DeepseekV3ForCausalLM', "
        "'DeepseekV4ForCausalLM', 'Glm4MoeForCausalLM', 'GlmMoeDsaForCausalLM', "
        "'KimiK3ForConditionalGeneration', 'KimiK3LinearForCausalLM', 'NemotronHForCausalLM', "
        "'NemotronHPuzzleForCausalLM', 'Qwen2MoeForCausalLM', 'Qwen3MoeForCausalLM'].",
    ),
    (
        "b300",
        f"SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE=fp8 {NEMOTRON} {MEGAMOE} --quantization modelopt_fp4",
        "ValueError: SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE must be one of 'bf16', 'mxfp8', or 'nvfp4', got 'fp8'.",
    ),
    (
        "b300",
        "SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE=mxfp8 "
        f"SGLANG_FLASHINFER_MEGAMOE_IN_KERNEL_FC2_REDUCE=1 {NEMOTRON} {MEGAMOE} --quantization "
        "modelopt_fp4",
        "ValueError: SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE='mxfp8' is incompatible with "
        "SGLANG_FLASHINFER_MEGAMOE_IN_KERNEL_FC2_REDUCE=1.",
    ),
    (
        "b300",
        "SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE=mxfp8 SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1 "
        f"{NEMOTRON} {MEGAMOE} --quantization modelopt_fp4",
        "ValueError: FlashInfer MegaMOE NVFP4 W4A16 requires SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE=bf16.",
    ),
    (
        "b300",
        f"SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16=1 {NEMOTRON} {MEGAMOE} --quantization modelopt_fp4 --dtype float16",
        "ValueError: FlashInfer MegaMOE NVFP4 W4A16 requires --dtype bfloat16.",
    ),
    (
        "b300",
        f"{GLM} --moe-a2a-backend deepep_v2 --moe-runner-backend triton --disable-radix-cache",
        "ValueError: DeepEP v2 MoE currently supports only --moe-runner-backend deep_gemm. Got "
        "'triton'. Add a runner adapter before enabling DeepEP v2 with other MoE runners.",
    ),
    (
        "b300",
        f"{GLM} --moe-a2a-backend deepep_v2 --enable-two-batch-overlap --disable-radix-cache",
        "ValueError: DeepEP v2 MoE has not implemented the TBO/SBO overlap hooks yet. Disable "
        "--enable-two-batch-overlap and --enable-single-batch-overlap when using --moe-a2a-backend "
        "deepep_v2.",
    ),
    (
        "b300",
        f"{GLM} --moe-a2a-backend deepep_v2 --enforce-shared-experts-fusion --disable-radix-cache",
        "ValueError: DeepEP v2 MoE has not validated fused shared experts yet. Remove "
        "--enforce-shared-experts-fusion when using --moe-a2a-backend deepep_v2.",
    ),
    (
        "b300",
        f"{GLM} --moe-a2a-backend deepep_v2 --nnodes 2 --disable-radix-cache",
        "ValueError: --deepep-v2-mode direct is NVLink-only and cannot run across nodes (nnodes=2); "
        "pass --deepep-v2-mode hybrid.",
    ),
)

REFUSED_BUDGETS = refusals(
    (
        "b300",
        f"{QWEN3_NEXT} --ep-size 4 --moe-runner-backend megamoe",
        "ValueError: Qwen3NextForCausalLM with MegaMoE requires "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK to cover each rank's effective prefill "
        "token budget. Current values: chunked_prefill_size=16384, token_partition=none, "
        "token_partition_size=1, token_alignment=8, required_per_rank=16384, "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=8192. Set "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK to at least 16384, or lower "
        "--chunked-prefill-size until the effective per-rank budget fits.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} {FLASHINFER} --moe-runner-backend flashinfer_cutlass --chunked-prefill-size -1",
        "ValueError: FlashInfer MoE A2A requires chunked prefill: eager prefill dispatches the whole "
        "per-rank extend batch through a fixed-size workspace, so --chunked-prefill-size must be > 0.",
    ),
    (
        "b300",
        f"SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK=512 {QWEN3_NEXT} {FLASHINFER} "
        "--moe-runner-backend flashinfer_cutlass",
        "ValueError: FlashInfer MoE A2A per-rank token budget "
        "exceeds its workspace: required=2048 tokens per rank (prefill chunk, prefill graph, or "
        "decode/verify graph), capacity=512. Set SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK>=2048, "
        "or unset it to size from --chunked-prefill-size, or lower --chunked-prefill-size / the CUDA graph "
        "max batch sizes.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --moe-a2a-backend megamoe --chunked-prefill-size -1",
        "ValueError: Qwen3NextForCausalLM with MegaMoE requires chunked prefill to be enabled. Set "
        "--chunked-prefill-size to a positive value; --chunked-prefill-size=-1 is unsafe because "
        "MegaMoE's per-rank token requirement would not have a strict prefill-forward bound.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --moe-a2a-backend megamoe --cuda-graph-max-bs-decode 16384",
        "ValueError: Qwen3NextForCausalLM with MegaMoE requires "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK to cover the largest decode / verify "
        "forward on one rank. Current values: largest decode graph bucket x tokens per request = "
        "16384, SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=8192. Raise the env var to at "
        "least 16384 or lower --cuda-graph-max-bs / --max-running-requests / "
        "--speculative-num-draft-tokens.",
    ),
    (
        "b300",
        f"{QWEN3_NEXT} --moe-a2a-backend megamoe --attn-dp-size 8 --chunked-prefill-size 4",
        "ValueError: Qwen3NextForCausalLM with MegaMoE requires chunked prefill to be enabled. Set "
        "--chunked-prefill-size to a positive value; --chunked-prefill-size=-1 is unsafe because "
        "MegaMoE's per-rank token requirement would not have a strict prefill-forward bound.",
    ),
    (
        "b300",
        f"SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=1024 {QWEN3_NEXT} --moe-a2a-backend megamoe",
        "ValueError: Qwen3NextForCausalLM with MegaMoE requires "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK to cover each rank's effective prefill "
        "token budget. Current values: chunked_prefill_size=16384, token_partition=none, "
        "token_partition_size=1, token_alignment=8, required_per_rank=16384, "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=1024. Set "
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK to at least 16384, or lower "
        "--chunked-prefill-size until the effective per-rank budget fits.",
    ),
    (
        "mi355x",
        f"{FLYDSL} --moe-a2a-backend megamoe --chunked-prefill-size 8192",
        "ValueError: SGLANG_AMD_FLYDSL_MEGA_MOE_DECODE_MTPR needs --max-running-requests to bound "
        "the largest decode / verify forward on one rank.",
    ),
    (
        "mi355x",
        f"{FLYDSL} --moe-a2a-backend megamoe --chunked-prefill-size 8192 --max-running-requests 300",
        "ValueError: SGLANG_AMD_FLYDSL_MEGA_MOE_DECODE_MTPR=256 must cover the largest decode / "
        "verify forward on one rank: max running requests per DP rank x tokens per request = 300. "
        "Raise it to a power of two of at least 300 or lower --max-running-requests.",
    ),
    (
        "mi355x",
        f"{FLYDSL} --moe-a2a-backend megamoe --attn-cp-size 2 --max-running-requests 100",
        "ValueError: SGLANG_AMD_FLYDSL_MEGA_MOE_DECODE_MTPR is not supported with attention context "
        "parallelism (--attn-cp-size > 1); set it to 0.",
    ),
    (
        "b300",
        f"{DEEPSEEK} --moe-a2a-backend deepep_v2",
        "ValueError: DeepEP v2 per-rank prefill budget exceeds "
        "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK: required=2048, capacity=128. Raise the "
        "environment value or lower --chunked-prefill-size/--max-prefill-tokens.",
    ),
    (
        "b300",
        f"{DEEPSEEK} --moe-a2a-backend deepep_v2 --chunked-prefill-size 1024 --cuda-graph-max-bs-decode 256",
        "ValueError: DeepEP v2 per-rank decode CUDA graph exceeds "
        "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK: required=256, capacity=128 "
        "(requests=256, tokens/request=1). Raise the environment value or lower "
        "--cuda-graph-max-bs-decode.",
    ),
    (
        "b300",
        f"{DEEPSEEK} --moe-a2a-backend deepep_v2 --speculative-algorithm EAGLE --chunked-prefill-size "
        "1024 --cuda-graph-max-bs-decode 64",
        "ValueError: DeepEP v2 MoE is not validated as a speculative "
        "draft backend. Select another --speculative-moe-a2a-backend.",
    ),
)

ENOUGH = [
    Case(
        "b300",
        f"{QWEN3_NEXT} --moe-a2a-backend megamoe --cuda-graph-max-bs-decode 16384 "
        "--max-running-requests 100 --chunked-prefill-size 8192",
        {"decode.max_bs": 16384},
    ),
    Case(
        "b300",
        f"SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=1024 {QWEN3_NEXT} --moe-a2a-backend "
        "megamoe --attn-dp-size 8",
        {"chunked_prefill_size": 2048},
    ),
    Case(
        "mi355x",
        f"{FLYDSL} --moe-a2a-backend megamoe --chunked-prefill-size 8192 --attn-dp-size 8 --max-running-requests 300",
        {"max_running_requests": 300},
    ),
    Case(
        "b300",
        f"SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK=1024 {GLM} --moe-a2a-backend deepep_v2 "
        "--chunked-prefill-size 4096 --disable-radix-cache",
        {"chunked_prefill_size": 4096},
    ),
]


@pytest.mark.parametrize("case", **named([*RUNNERS, *EXCHANGES, *ENOUGH]))
def test_resolved_as_the_engine_does(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named([*REFUSED_RUNNERS, *REFUSED_EXCHANGES, *REFUSED_BUDGETS]))
def test_refused_in_the_engine_s_words(case: Case) -> None:
    check(case)


MORI = "--moe-a2a-backend mori --chunked-prefill-size 4096"
QUANTIZED = "--quantization modelopt_fp4 --moe-runner-backend flashinfer_cutlass"
SMALL = "--chunked-prefill-size 1024 --cuda-graph-max-bs-decode 64"
ENVIRONMENTS = [
    ("mi355x", MORI, "SGLANG_MORI_EP_V2", "False"),
    ("mi355x", f"SGLANG_MORI_EP_V2=1 {MORI}", "SGLANG_MORI_EP_V2", "1"),
    ("b300", f"{NEMOTRON} {MEGAMOE} --quantization mxfp8", "NVSHMEM_REMOTE_TRANSPORT", "none"),
    ("b300", f"{NEMOTRON} {MEGAMOE} --quantization mxfp8", "NVSHMEM_IB_ENABLE_IBGDA", "0"),
    ("b300", f"{QWEN3_NEXT} {FLASHINFER} {QUANTIZED}", "SGLANG_MOE_NVFP4_DISPATCH", "True"),
    (
        "b300",
        f"SGLANG_MOE_NVFP4_DISPATCH=0 {QWEN3_NEXT} {FLASHINFER} {QUANTIZED}",
        "SGLANG_MOE_NVFP4_DISPATCH",
        "0",
    ),
    ("b300", f"{DEEPSEEK} --moe-a2a-backend deepep_v2 {SMALL}", "NCCL_CUMEM_ENABLE", "1"),
]


@pytest.mark.parametrize(("platform", "flags", "variable", "value"), ENVIRONMENTS)
def test_what_workers_find_in_their_environment(platform: str, flags: str, variable: str, value: str) -> None:
    found = outcome(Case(platform, flags))
    assert (found.error, found.env.get(variable)) == (None, value)
