"""Our replica admits, decodes, retracts and finishes when SGLang's own scheduler does, case by case."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scheduler_table import CASES, RECORDED, Told, ordered, played, recorded

from .oracle import WORKERS, Oracle

pytestmark = pytest.mark.conformance

DRIVER = Path(__file__).with_name("scheduler_driver.py")
KEPT = 40


@pytest.fixture(scope="module")
def answers(oracle: Oracle) -> dict[str, list[Told]]:
    """What the engine's scheduler did in all cases, played by as many processes as the oracle may have."""
    every = [(name, number) for name, cases in CASES.items() for number in range(len(cases))]
    shares = [every[first::WORKERS] for first in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = {key: told for share in pool.map(lambda share: _ask(oracle, share), shares) for key, told in share}
    return {name: [found[name, number] for number in range(len(cases))] for name, cases in CASES.items()}


def _ask(oracle: Oracle, share: list[tuple[str, int]]) -> list[tuple[tuple[str, int], Told]]:
    command = [str(oracle.python), str(DRIVER), str(oracle.scripts)]
    asked = json.dumps([CASES[name][number] for name, number in share])
    done = subprocess.run(command, input=asked, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return [(key, ordered(json.loads(line))) for key, line in zip(share, done.stdout.splitlines(), strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_everything_happens_when_it_does_in_the_engine(name: str, answers: dict[str, list[Told]]) -> None:
    for number, (one, theirs) in enumerate(zip(CASES[name], answers[name], strict=True)):
        assert ordered(played(one)) == theirs, f"case {number} of {name}: {one['setup']}"


def test_the_cases_try_what_is_rare(answers: dict[str, list[Told]]) -> None:
    retracted = sum(what == "retract" for told in answers.values() for one in told for _, what, _ in one)
    assert retracted > 50


def test_the_recorded_answers_are_the_engines(answers: dict[str, list[Told]]) -> None:
    """The first of every kind of case, for a test that goes without the engine; PERILUNE_RECORD has them written."""
    first = {name: [[list(event) for event in told] for told in every[:KEPT]] for name, every in answers.items()}
    if os.environ.get("PERILUNE_RECORD"):
        RECORDED.write_bytes(gzip.compress(json.dumps(first).encode(), mtime=0))
    assert recorded() == {name: [ordered(told) for told in every] for name, every in first.items()}
