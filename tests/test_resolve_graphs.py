"""CUDA graphs: backends, captured sizes, what rules them out."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

PHASES = table(
    "decode.backend decode.max_bs prefill.backend prefill.max_bs",
    ("b300", "", "full", 512, "disabled", 8192),
    ("b300", "--disable-cuda-graph", "disabled", 512, "disabled", 8192),
    ("b300", "--disable-decode-cuda-graph", "disabled", 512, "disabled", 8192),
    ("b300", "--cuda-graph-backend-prefill breakable", "full", 512, "breakable", 8192),
    ("b300", "--cuda-graph-backend-prefill full", "full", 512, "full", 8192),
    ("b300", "--cuda-graph-max-bs-decode 300", "full", 300, "disabled", 8192),
    ("b300", "--cuda-graph-max-bs-prefill 2000", "full", 512, "disabled", 2000),
    ("b300", "--max-running-requests 100", "full", 100, "disabled", 8192),
    ("b300", "--max-running-requests 64 --cuda-graph-max-bs-decode 300", "full", 300, "disabled", 8192),
    ("b300", "--max-total-tokens 1000", "full", 512, "disabled", 1000),
    ("b300", "--chunked-prefill-size 2048", "full", 512, "disabled", 2048),
    ("b300", "--chunked-prefill-size -1", "full", 512, "disabled", -1),
    ("b300", "--cuda-graph-backend-prefill breakable --pp-size 2", "full", 512, "breakable", 8192),
    ("b300", "--cuda-graph-backend-prefill breakable --moe-a2a-backend deepep", "full", 512, "breakable", 2048),
    ("b300", "--disaggregation-mode prefill", "disabled", 512, "disabled", 8192),
    ("b300", "--disaggregation-mode decode", "full", 512, "disabled", 8192),
    ("b300", "--disaggregation-mode prefill --cuda-graph-backend-decode full", "full", 512, "disabled", 8192),
    (
        "b300",
        '--cuda-graph-config \'{"prefill":{"backend":"breakable","max_bs":4096}}\'',
        "full",
        512,
        "breakable",
        4096,
    ),
    (
        "b300",
        '--cuda-graph-config \'{"prefill":{"backend":"disabled"}}\' --cuda-graph-backend-prefill breakable',
        "full",
        512,
        "disabled",
        8192,
    ),
    ("h200", "", "full", 512, "disabled", 8192),
    ("mi355x", "", "full", 512, "disabled", 8192),
    ("a3", "", "full", 256, "disabled", 8192),
)

SIZES = table(
    "decode.bs prefill.bs prefill.max_context_size",
    ("b300", "--cuda-graph-bs-decode 1 2 50 --cuda-graph-bs-prefill 512 100", [1, 2, 50], [512, 100], None),
    (
        "b300",
        "--cuda-graph-max-bs-decode 3 --cuda-graph-max-bs-prefill 100",
        [1, 2, 3],
        [4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96],
        None,
    ),
    (
        "b300",
        "DSPARK --cuda-graph-max-bs-decode 90 --cuda-graph-max-bs-prefill 60",
        [
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            10,
            12,
            14,
            16,
            18,
            20,
            22,
            24,
            26,
            28,
            30,
            32,
            40,
            44,
            48,
            52,
            56,
            60,
            64,
            72,
            80,
            88,
            90,
        ],
        [4, 8, 12, 16, 20, 24, 28, 32, 48],
        None,
    ),
    (
        "b300",
        "--disable-cuda-graph-padding --cuda-graph-max-bs-decode 5 --cuda-graph-max-bs-prefill 3",
        [1, 2, 3, 4, 5],
        [],
        None,
    ),
    (
        "b300",
        "--cuda-graph-max-bs-decode 290 --cuda-graph-max-bs-prefill 20",
        [
            1,
            2,
            4,
            8,
            12,
            16,
            24,
            32,
            40,
            48,
            56,
            64,
            72,
            80,
            88,
            96,
            104,
            112,
            120,
            128,
            136,
            144,
            152,
            160,
            168,
            176,
            184,
            192,
            200,
            208,
            216,
            224,
            232,
            240,
            248,
            256,
            272,
            288,
            290,
        ],
        [4, 8, 12, 16, 20],
        None,
    ),
    (
        "b300",
        "--cuda-graph-backend-prefill breakable --moe-a2a-backend deepep "
        "--cuda-graph-max-bs-prefill 100 --cuda-graph-max-bs-decode 4",
        [1, 2, 4],
        [8, 16, 24, 32, 48, 64, 80, 96],
        None,
    ),
    (
        "b300",
        "--cuda-graph-prefill-max-context 1000 --cuda-graph-max-bs-decode 4 --cuda-graph-max-bs-prefill 4",
        [1, 2, 4],
        [4],
        1024,
    ),
)

REFUSED = refusals(
    (
        "b300",
        "--cuda-graph-prefill-max-context 2000000",
        "ValueError: --cuda-graph-prefill-max-context exceeds the model context length: aligned size 2000000 > 1048576",
    ),
    (
        "b300",
        "--cuda-graph-prefill-max-context 0",
        "ValueError: --cuda-graph-prefill-max-context must be a positive integer",
    ),
    (
        "b300",
        '--cuda-graph-config \'{"decode":{"backend":"zzz"}}\'',
        "ValueError: --cuda-graph-config[decode].backend='zzz' not allowed; allowed: ('full', 'breakable', 'disabled')",
    ),
    (
        "b300",
        '--cuda-graph-config \'{"decode":{"bs":[]}}\'',
        "ValueError: max() arg is an empty sequence",
    ),
)


@pytest.mark.parametrize("case", **named(PHASES + SIZES))
def test_settled(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named(REFUSED))
def test_refused(case: Case) -> None:
    check(case)
