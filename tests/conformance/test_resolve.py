"""Our resolution beside the real pipeline: the judged lines of the reference, and generated ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perilune.plan.resolve.state import Resolved

from .compare import NOT_COMPARED, differences, ours, plain
from .conftest import reference
from .generate import generate

pytestmark = pytest.mark.conformance

LEFT_OUT = {
    "model_path": "holds the judge's own local folder",
    "tokenizer_path": "holds the judge's own local folder",
    "served_model_name": "holds the judge's own local folder",
    "speculative_draft_model_path": "holds the judge's own local folder",
    "grpc_worker_threads": "the same constant on every line",
}
"""Fields that the reference does not list although they change. Generated lines compare them."""


@pytest.mark.parametrize("case", reference("args_results.json"), ids=lambda case: case["id"])
def test_a_judged_line(case: dict[str, Any]) -> None:
    mine = ours(case)
    assert isinstance(mine, Resolved), mine
    assert mine.accepted == case["accepted"], mine.error or case.get("error")
    if not mine.accepted:
        assert mine.error == case["error"]
        assert mine.stage == case["stage"]
        return
    changes = case["resolved"]
    wrong = [
        f"{field}: engine {changes.get(field, 'as written')!r}, ours {plain(mine[field])!r}"
        for field in mine.values
        if field not in NOT_COMPARED.keys() | LEFT_OUT.keys()
        and not _agrees(plain(mine[field]), plain(_written(mine, field)), changes, field)
    ]
    assert not wrong, "\n".join(wrong)


def _written(mine: Resolved, field: str) -> Any:
    first = next((rewrite for rewrite in mine.rewrites if rewrite.field == field), None)
    return first.before if first else mine[field]


def _agrees(have: Any, written: Any, changes: dict[str, Any], field: str) -> bool:
    """Whether a value is the reference's: it lists only changed fields, as [written, resolved] or resolved."""
    if field not in changes:
        return field.startswith("_") or have == written or (written is None and have in ([], {}))
    wanted = changes[field]
    if isinstance(wanted, dict):
        return isinstance(have, dict) and _covers(have, wanted)
    return have == wanted or wanted == [written, have]


def _covers(have: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether every setting the reference lists is ours too (it leaves lists of graph sizes out)."""
    return all(
        _covers(have.get(key, {}), value) if isinstance(value, dict) else have.get(key) == value
        for key, value in wanted.items()
    )


@pytest.mark.parametrize("case", generate(300, seed=1), ids=lambda case: case["id"])
def test_a_generated_line(case: dict[str, Any], verdict_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    found = differences(case, verdict_of(case))
    assert not found, "\n".join(found)
