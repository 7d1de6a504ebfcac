"""Our replica admits, decodes, retracts and finishes when SGLang's own scheduler does, case by case."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scheduler_table import Told, case, played

from .oracle import WORKERS, Oracle

pytestmark = pytest.mark.conformance

DRIVER = Path(__file__).with_name("scheduler_driver.py")

CASES: dict[str, list[dict[str, Any]]] = {
    "any mixture": [case(seed) for seed in range(120)],
    "overlap, ending by themselves": [case(seed, overlap=True, ignore_eos=False, ratio=0.05) for seed in range(40)],
    "no overlap, ending by themselves": [case(seed, overlap=False, ignore_eos=False, ratio=0.05) for seed in range(40)],
    "no radix cache, known lengths": [case(seed, disabled=True, ignore_eos=True) for seed in range(40)],
    "longest prefix first": [case(seed, schedule_policy="lpm", disabled=False) for seed in range(40)],
    "mixed chunks": [case(seed, chunk=32, mixed=True) for seed in range(40)],
}


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
    return [(key, _ordered(json.loads(line))) for key, line in zip(share, done.stdout.splitlines(), strict=True)]


def _ordered(told: list[Any]) -> Told:
    """By instant, to the microsecond; the engine's order within one is not compared."""
    return sorted((round(instant, 6), what, request) for instant, what, request in told)


@pytest.mark.parametrize("name", CASES)
def test_everything_happens_when_it_does_in_the_engine(name: str, answers: dict[str, list[Told]]) -> None:
    for number, (one, theirs) in enumerate(zip(CASES[name], answers[name], strict=True)):
        assert _ordered(played(one)) == theirs, f"case {number} of {name}: {one['setup']}"


def test_the_cases_try_what_is_rare(answers: dict[str, list[Told]]) -> None:
    retracted = sum(what == "retract" for told in answers.values() for one in told for _, what, _ in one)
    assert retracted > 50
