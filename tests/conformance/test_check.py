"""`check` beside the engine's own verdict: an error exactly where the engine refuses."""

from __future__ import annotations

from typing import Any

import pytest

from perilune.facts.hardware import platform
from perilune.plan.model.config import known_config
from perilune.plan.resolve import DEFAULT_MODEL
from perilune.plan.rules import findings_of, subject_of
from perilune.plan.server import Server

from .conftest import reference

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
    "ascend-store-missing": "raised by the transfer engine of the platform",
}
"""Errors on lines whose arguments the engine accepts: what stops the server after that, by finding."""


@pytest.mark.parametrize("case", reference("args_results.json"), ids=lambda case: case["id"])
def test_an_error_exactly_where_the_engine_refuses(case: dict[str, Any]) -> None:
    server = Server(tuple(case["argv"]), tuple((case.get("env") or {}).items()), program=())
    model = None if server.has("--model-path") else known_config(DEFAULT_MODEL)
    subject = subject_of(server, platform(case["platform"]), model=model, expands=True)
    errors = [finding for finding in findings_of(subject) if finding.severity == "error"]
    if case["accepted"]:
        assert not [one.message for one in errors if one.id not in LATER]
    else:
        assert errors, case["error"]
