"""`check` beside the engine's own verdict: an error exactly where the engine refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perilune.facts.hardware import platform
from perilune.facts.rule_agreement import beyond_arguments
from perilune.plan.rules import correct, findings_of, subject_of
from perilune.plan.rules.refusals import KNOWN
from perilune.plan.rules.rule import ENGINE
from perilune.plan.server import Server

from .conftest import reference
from .generate import generate
from .oracle import Oracle

pytestmark = pytest.mark.conformance

CLASSES = {known.id for known in KNOWN}
FEW = 5  # refused lines that no known edit makes start
AFTER_ARGUMENTS = ("groups", "load", "pools")


@pytest.mark.parametrize("case", reference("args_results.json"), ids=lambda case: case["id"])
def test_an_error_exactly_where_the_engine_refuses(case: dict[str, Any]) -> None:
    hold(case, case["accepted"], case.get("error"))


@pytest.mark.parametrize("case", generate(300, seed=1), ids=lambda case: case["id"])
def test_an_error_exactly_where_a_generated_line_is_refused(
    case: dict[str, Any], verdict_of: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    verdict = verdict_of(case)
    hold(case, verdict["ok"], verdict.get("error"))


def test_what_is_refused_is_corrected_to_what_the_engine_takes(oracle: Oracle) -> None:
    """Every correction is judged by the engine itself, not by the model of it that found the correction."""
    corrected, without = [], []
    for case in reference("args_results.json"):
        if case["accepted"]:
            continue
        server = server_of(case)
        better = correct(server, subject_of(server, platform(case["platform"]), expands=True).ledger)
        if better is None:
            without.append(case["id"])
            continue
        env = dict(better.server.environment)
        corrected.append(
            {
                "id": case["id"],
                "kind": "arguments",
                "platform": case["platform"],
                "argv": [*better.server.argv],
                "env": env,
            }
        )
    verdicts = oracle.judge(corrected)
    wrong = [
        (case["id"], case["argv"], v.get("error")) for case, v in zip(corrected, verdicts, strict=True) if not v["ok"]
    ]
    assert wrong == []
    assert len(corrected) > 50
    assert len(without) <= FEW, without


def server_of(case: dict[str, Any]) -> Server:
    return Server(tuple(case["argv"]), tuple((case.get("env") or {}).items()), program=())


def hold(case: dict[str, Any], accepted: bool, error: str | None) -> None:
    subject = subject_of(server_of(case), platform(case["platform"]), expands=True)
    findings = findings_of(subject)
    errors = [finding for finding in findings if finding.severity == "error"]
    stage = subject.ledger.error_stage
    refusals = [finding for finding in findings if finding.source == f"{ENGINE}, {stage or 'pools'} stage"]
    if not accepted:
        # The engine's own refusal is told as such, under an id of its class and with a fix.
        assert stage not in (None, *AFTER_ARGUMENTS), error
        assert [f.id for f in errors if f in refusals and f.id in CLASSES and f.fix], error
        return
    assert not [finding.message for finding in errors if finding.id not in beyond_arguments()]
    if subject.shape_known and not subject.ledger.boots:
        # Past the arguments, it is told which class of late failure it is.
        assert stage in (None, *AFTER_ARGUMENTS), subject.ledger.error
        assert [f.id for f in refusals if f.id in beyond_arguments() and f.severity in ("error", "capacity")]
