"""Our ledger beside the real sizing code: the judged cases of the reference, and generated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .compare_memory import memory_differences
from .conftest import reference
from .generate import generate_memory

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("verdict", reference("cases.json"), ids=lambda verdict: verdict["id"])
def test_a_judged_case(verdict: dict[str, Any]) -> None:
    found = memory_differences(verdict["input"], verdict)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("case", generate_memory(300, seed=1), ids=lambda case: case["id"])
def test_a_generated_case(case: dict[str, Any], verdict_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    found = memory_differences(case, verdict_of(case))
    assert not found, "\n".join(found)
