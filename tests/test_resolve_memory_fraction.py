"""Chunk size, largest decode graph and static memory fraction by default."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, table

DEFAULTS = table(
    "chunked_prefill_size decode.max_bs mem_fraction_static",
    ("b300", "", 16384, 512, 0.845250625),
    ("gb300", "", 16384, 512, 0.849003125),
    ("b200", "", 16384, 512, 0.7992825),
    ("gb200", "", 16384, 512, 0.803973125),
    ("h200", "", 8192, 512, 0.841498125),
    ("h100", "", 8192, 512, 0.7673862499999999),
    ("mi350x", "", 16384, 512, 0.8518175),
    ("mi355x", "", 16384, 512, 0.8518175),
    ("a3", "", 8192, 256, 0.72610875),
    ("b300", "DSPARK", 16384, 512, 0.845250625),
    ("b300", "--pp-size 2", 16384, 512, 0.84243625),
    ("b300", "--chunked-prefill-size 2048", 2048, 512, 0.903414375),
    ("b300", "--chunked-prefill-size 32768", 32768, 512, 0.7617575000000001),
    ("b300", "--chunked-prefill-size -1", -1, 512, 0.845250625),
    ("b300", "--attn-dp-size 8", 2048, 512, 0.7823962499999999),
    ("b300", "--attn-dp-size 8 --cuda-graph-max-bs-decode 64", 2048, 64, 0.843374375),
    ("b300", "--attn-dp-size 4 --max-running-requests 400", 4096, 400, 0.8217975),
    ("b300", "--disaggregation-mode prefill", 16384, 512, 0.849003125),
    ("b300", "--disaggregation-mode decode", 16384, 512, 0.963),
    ("b300", "--disaggregation-mode decode --max-running-requests 32", 16384, 32, 0.963),
    ("b300", "--disaggregation-mode prefill --attn-dp-size 8", 2048, 512, 0.849003125),
    ("b300", "--cuda-graph-backend-prefill breakable", 16384, 512, 0.84056),
    ("b300", "--moe-a2a-backend deepep", 16384, 512, 0.83868375),
    ("b300", "--cuda-graph-backend-prefill breakable --moe-a2a-backend deepep", 16384, 512, 0.830240625),
    ("b300", "--mem-fraction-static 0.9", 16384, 512, 0.9),
    ("b300", "--disable-cuda-graph", 16384, 512, 0.849003125),
    ("b300", "--tp-size 1", 16384, 512, 0.849003125),
    ("b300", "--tp-size 3", 16384, 512, 0.848065),
    ("b300", "--tp-size 16", 16384, 512, 0.84243625),
    ("b300", "--tp-size 64", 16384, 512, 0.820859375),
    ("h100", "--tp-size 2", 8192, 256, 0.7823962499999999),
    ("a3", "--tp-size 2", 8192, 64, 0.7429950000000001),
)


@pytest.mark.parametrize("case", **named(DEFAULTS))
def test_settled(case: Case) -> None:
    check(case)
