"""`check` beside the engine's own verdict: an error exactly where the engine refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perilune.facts.hardware import platform
from perilune.plan.model.config import known_config
from perilune.plan.resolve import DEFAULT_MODEL
from perilune.plan.rules import findings_of, subject_of
from perilune.plan.server import Server

from .conftest import reference
from .generate import generate

pytestmark = pytest.mark.conformance

LATER = {
    "memory-weights": "the judge stops before weights are loaded",
    "memory-fraction-low": "the judge stops before pools are sized",
    "amd-aiter-opt": "the judge stops before pools are sized",
    "state-lazy-overlap": "raised while pools are sized",
    "spec-replay-ring": "raised while pools are sized",
    "parallel-heads": "raised while layers are built",
    "dcp-divides": "raised while ranks form their groups",
    "moe-kernel-platform": "the kernel is missing when it is first called",
    "moe-checkpoint-platform": "the kernel is missing when it is first called",
    "parallel-node-gpus": "raised when the nodes start more ranks than they have accelerators",
    "state-pin-large": "the judge stops before pools are sized",
    "ascend-store-missing": "raised by the transfer engine of the platform",
}
"""Errors on lines whose arguments the engine accepts: what stops the server after that, by finding."""


@pytest.mark.parametrize("case", reference("args_results.json"), ids=lambda case: case["id"])
def test_an_error_exactly_where_the_engine_refuses(case: dict[str, Any]) -> None:
    hold(case, case["accepted"], case.get("error"))


@pytest.mark.parametrize("case", generate(300, seed=1), ids=lambda case: case["id"])
def test_an_error_exactly_where_a_generated_line_is_refused(
    case: dict[str, Any], verdict_of: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    verdict = verdict_of(case)
    hold(case, verdict["ok"], verdict.get("error"))


def hold(case: dict[str, Any], accepted: bool, error: str | None) -> None:
    server = Server(tuple(case["argv"]), tuple((case.get("env") or {}).items()), program=())
    model = None if server.has("--model-path") else known_config(DEFAULT_MODEL)
    subject = subject_of(server, platform(case["platform"]), model=model, expands=True)
    errors = [finding for finding in findings_of(subject) if finding.severity == "error"]
    if not accepted:
        assert errors, error
    elif subject.ledger.error_stage not in ("groups", "load", "pools"):
        assert not [one.message for one in errors if one.id not in LATER]
