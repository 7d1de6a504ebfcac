"""Our radix cache finds, keeps and evicts what SGLang's own does, operation by operation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from radix_table import SETUPS, Played, operations

from .oracle import WORKERS, Oracle

pytestmark = pytest.mark.conformance

DRIVER = Path(__file__).with_name("radix_driver.py")
MANY, FEW = 10_000, 700
SELDOM = ("extra_buffer_lazy, scarce slots", "no state, tlru")
"""Setups whose own rule seldom decides anything."""

Case = tuple[str, str, int, int]
"""A setup, the engine's tree core, a seed and a number of operations."""

CASES: list[Case] = [
    ("extra_buffer", "rust", 1, MANY),
    ("no_buffer", "rust", 2, MANY),
    *((name, "rust", 3, 3 * FEW if name in SELDOM else FEW) for name in SETUPS),
    *((name, "rust", 4, FEW) for name in ("extra_buffer_lazy", "extra_buffer under DCP", "no state, page 64")),
    *((name, "python", 5, FEW) for name in ("extra_buffer", "extra_buffer_lazy", "no_buffer", "no state, tlru")),
]


@pytest.fixture(scope="module")
def answers_of(oracle: Oracle) -> Callable[[Case], list[list[Any]]]:
    """What the engine's cache found; all cases are played by as many processes as the oracle may have."""
    shares = [CASES[first::WORKERS] for first in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = [pair for answers in pool.map(lambda share: _ask(oracle, share), shares) for pair in answers]
    answers = dict(found)
    return lambda case: answers[case]


def _ask(oracle: Oracle, cases: list[Case]) -> list[tuple[Case, list[list[Any]]]]:
    asked = [
        {"setup": SETUPS[name] | {"core": core}, "ops": list(operations(seed, count, SETUPS[name]))}
        for name, core, seed, count in cases
    ]
    command = [str(oracle.python), str(DRIVER), str(oracle.scripts)]
    done = subprocess.run(command, input=json.dumps(asked), text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return list(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_every_operation_finds_and_leaves_what_the_engine_does(
    case: Case, answers_of: Callable[[Case], list[list[Any]]]
) -> None:
    name, _, seed, count = case
    ours = Played(SETUPS[name])
    hits = 0
    for index, (operation, theirs) in enumerate(
        zip(operations(seed, count, SETUPS[name]), answers_of(case), strict=True)
    ):
        assert ours.play(operation) == theirs, f"operation {index} of {name}, seed {seed}: {operation}"
        hits += operation[0] == "start" and bool(theirs[0])
    assert SETUPS[name]["disabled"] == (not hits)  # the operations do share prefixes
