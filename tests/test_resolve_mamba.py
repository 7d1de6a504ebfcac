"""The state cache strategy and the options of the state kernels."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

STRATEGY = table(
    "uses_mamba_radix_cache mamba_radix_cache_strategy disable_overlap_schedule page_size",
    ("b300", "", True, "extra_buffer", False, 64),
    ("b300", "--disable-overlap-schedule", True, "no_buffer", True, 64),
    ("b300", "--disable-overlap-schedule --page-size 64", True, "extra_buffer", True, 64),
    ("b300", "--disable-radix-cache", False, "auto", False, 64),
    ("b300", "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule", True, "no_buffer", True, 64),
    ("b300", "--mamba-radix-cache-strategy extra_buffer_lazy", True, "extra_buffer_lazy", False, 64),
    ("b300", "--linear-attn-backend cutedsl", True, "no_buffer", True, 64),
    (
        "b300",
        "--disaggregation-mode decode --mamba-radix-cache-strategy extra_buffer_lazy",
        False,
        "extra_buffer_lazy",
        False,
        64,
    ),
    ("b300", "--mamba-track-interval 100", True, "extra_buffer", False, 64),
    ("b300", "DSPARK --mamba-track-interval 7", True, "extra_buffer", False, 64),
    ("b300", "DSPARK --speculative-num-draft-tokens 8", True, "extra_buffer", False, 64),
    ("b300", "--enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16", True, "extra_buffer", False, 64),
    ("b300", "--enable-int8-mamba-checkpoint", True, "extra_buffer", False, 64),
    ("h200", "", True, "extra_buffer", False, 1),
    ("a3", "", True, "extra_buffer", False, 128),
    (
        "h200",
        "--enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16 --mamba-backend flashinfer",
        True,
        "extra_buffer",
        False,
        1,
    ),
)

REFUSED = refusals(
    (
        "b300",
        "--mamba-radix-cache-strategy no_buffer",
        "AssertionError: no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True.",
    ),
    (
        "b300",
        "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule --page-size 64",
        "AssertionError: no_buffer only supports page_size=1.",
    ),
    (
        "b300",
        "--mamba-radix-cache-strategy extra_buffer --linear-attn-backend cutedsl",
        "AssertionError: extra_buffer is not supported for KimiK3ForConditionalGeneration; use no_buffer.",
    ),
    (
        "b300",
        "--disaggregation-mode prefill --mamba-radix-cache-strategy extra_buffer_lazy",
        "AssertionError: extra_buffer_lazy unsupported under PD disaggregation; use "
        "--mamba-radix-cache-strategy extra_buffer.",
    ),
    (
        "b300",
        "--mamba-track-interval 100 --page-size 32",
        "AssertionError: ",
    ),
    (
        "b300",
        "--page-size 48",
        "AssertionError: ",
    ),
    (
        "b300",
        "--mamba-cache-philox-rounds -1",
        "ValueError: --mamba-cache-philox-rounds must be non-negative.",
    ),
    (
        "b300",
        "--mamba-max-states-per-path 0",
        "ValueError: --mamba-max-states-per-path must be -1 (unlimited) or a positive integer, got 0.",
    ),
    (
        "b300",
        "--mamba-max-states-per-path -2",
        "ValueError: --mamba-max-states-per-path must be -1 (unlimited) or a positive integer, got -2.",
    ),
    (
        "b300",
        "--enable-mamba-cache-stochastic-rounding",
        "ValueError: Stochastic rounding for the Mamba SSM cache requires --mamba-ssm-dtype "
        "float16, got None. Run with --mamba-ssm-dtype float16 or disable "
        "--enable-mamba-cache-stochastic-rounding.",
    ),
    (
        "b300",
        "--enable-int8-mamba-checkpoint --enable-hierarchical-cache",
        "ValueError: --enable-int8-mamba-checkpoint is not supported together with "
        "--enable-hierarchical-cache: the host-offload path is not int8-aware. Disable one "
        "of them.",
    ),
    (
        "b300",
        "--enable-int8-mamba-checkpoint --enable-lmcache",
        "ValueError: --enable-int8-mamba-checkpoint is not supported together with "
        "--enable-lmcache: LMCache is not int8-aware. Disable one of them.",
    ),
    (
        "b300",
        "--enable-int8-mamba-checkpoint --radix-cache-backend foo",
        "ValueError: --enable-int8-mamba-checkpoint only supports the built-in mamba radix "
        "cache; --radix-cache-backend='foo' is not int8-aware. Omit --radix-cache-backend.",
    ),
    (
        "h200",
        "--enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16",
        "ValueError: Stochastic rounding for the Mamba SSM cache with --mamba-backend triton "
        "requires SM100 with CUDA >= 12.8 because it uses the cvt.rs.f16x2.f32 PTX "
        "instruction. On H100/SM90, run with --mamba-backend flashinfer --mamba-ssm-dtype "
        "float16, or disable --enable-mamba-cache-stochastic-rounding.",
    ),
    (
        "mi355x",
        "--enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16",
        "ValueError: Stochastic rounding for the Mamba SSM cache is only supported on NVIDIA "
        "CUDA platforms. Disable --enable-mamba-cache-stochastic-rounding on this platform.",
    ),
    (
        "mi355x",
        "--mamba-backend flashinfer",
        "ValueError: FlashInfer mamba module not available, please check the FlashInfer installation.",
    ),
)


@pytest.mark.parametrize("case", **named(STRATEGY))
def test_settled(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named(REFUSED))
def test_refused(case: Case) -> None:
    check(case)
