"""Our replica does what SGLang's own scheduler was recorded to do; `tests/conformance` asks the engine itself."""

from __future__ import annotations

import pytest

from scheduler_table import CASES, ordered, played, recorded


@pytest.mark.parametrize("name", CASES)
def test_everything_happens_when_it_did_in_the_engine(name: str) -> None:
    answers = recorded()[name]
    assert answers
    for number, theirs in enumerate(answers):
        assert ordered(played(CASES[name][number])) == theirs, f"case {number} of {name}"
