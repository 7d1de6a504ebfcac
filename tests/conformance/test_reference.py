"""The reference is whole: a comparison with nothing must not pass for one with everything."""

from __future__ import annotations

import pytest

from .conftest import reference
from .oracle import Oracle

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(("name", "count"), [("args_results.json", 170), ("cases.json", 58)])
def test_every_judged_case_is_there(oracle: Oracle, name: str, count: int) -> None:
    assert len(reference(name)) == count
