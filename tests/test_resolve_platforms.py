"""What an accelerator family decides by itself."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

ASCEND = table(
    "attention_backend page_size chunked_prefill_size decode.max_bs "
    "disable_custom_all_reduce hicache_io_backend hicache_mem_layout",
    ("a3", "", "ascend", 128, 8192, 256, True, "kernel", "page_first"),
    ("a3", "--disaggregation-mode decode", "ascend", 128, 8192, 256, True, "kernel_ascend", "page_first_kv_split"),
)

SYMMETRIC_MEMORY = table(
    "enable_symm_mem",
    ("b300", "--enable-symm-mem", True),
    ("mi355x", "--enable-symm-mem", True),
    ("a3", "--enable-symm-mem", False),
)

KV_SPLITS = table(
    "triton_attention_num_kv_splits",
    ("b300", "--triton-attention-num-kv-splits 4", 4),
    ("mi355x", "--triton-attention-num-kv-splits 4", 16),
)

REFUSED = refusals(
    (
        "b300",
        "--enable-amd-monokernel",
        "ValueError: --enable-amd-monokernel cannot run this setup:\n  - no monokernel "
        "backend 'amd' is registered (registered: []); install the plugin that provides it",
    ),
    (
        "b300",
        "--enable-nvidia-megakernel",
        "ValueError: --enable-nvidia-megakernel cannot run this setup:\n  - the "
        "'nvidia_megakernel' plugin is not installed; install sgl-nvidia-mega "
        "(https://github.com/sgl-project/sgl-nvidia-mega)",
    ),
    (
        "b300",
        "--enable-amd-monokernel --enable-nvidia-megakernel",
        "ValueError: --enable-nvidia-megakernel cannot run this setup:\n  - the "
        "'nvidia_megakernel' plugin is not installed; install sgl-nvidia-mega "
        "(https://github.com/sgl-project/sgl-nvidia-mega)\n  - --enable-amd-monokernel is "
        "also set; use one of the two",
    ),
    (
        "b300",
        "SGLANG_USE_MLX=1 ",
        "RuntimeError: SGLANG_USE_MLX requires stable Torch 2.13.x and MLX >= 0.32.0, but "
        "MLX is not installed; reinstall with the srt_mps extra",
    ),
    (
        "a3",
        "--enable-amd-monokernel",
        "ValueError: --enable-amd-monokernel cannot run this setup:\n  - no GPU is visible",
    ),
)


@pytest.mark.parametrize("case", **named(ASCEND + SYMMETRIC_MEMORY + KV_SPLITS))
def test_settled(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named(REFUSED))
def test_refused(case: Case) -> None:
    check(case)
