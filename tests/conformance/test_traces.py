"""Readers of request traces against those of aiperf 0.13.0, on the samples kept here and on the reference's.

Differences that are meant, and so not compared:

- Rows with an empty prompt or answer are left out here; aiperf keeps them (WEKA answers as one token).
- A sub-agent's `t` is its end here, and its start for aiperf; see `perilune.rehearse.traces.weka`.
- Made ids of TraceLab reach into the answer here, so a round may repeat more of the one before it than its prompt.
- TraceLab's output tokens hold the reasoning, says its own accounting; aiperf adds the reasoning once more.
- TraceLab sessions stay sessions here; aiperf guesses from times which are sub-agents of another.
- Mooncake arrivals are spread within the trace's steps here, unless that is switched off, as it is for this test.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from perilune.rehearse.request import Request
from perilune.rehearse.traces import traffic
from perilune.rehearse.traces.turns import turns

pytestmark = pytest.mark.conformance

DRIVER = Path(__file__).with_name("traces_driver.py")
SAMPLES = Path(__file__).parents[1] / "data" / "traces"
FACTS = Path(os.environ.get("PERILUNE_FACTS", "absent")) / "traces"
FILES = {
    "mooncake": (
        "mooncake_conversation.jsonl",
        "mooncake_conversation_first2000.jsonl",
        "mooncake_synthetic_first2000.jsonl",
    ),
    "bailian": ("bailian.jsonl",),
    "burstgpt": ("burstgpt_1.csv", "burstgpt_3.csv"),
    "weka": ("weka_trace_0026.json", "weka_cc_trace_0019.json", "weka_cc_trace_0022.json", "weka_cc_trace_0026.json"),
    "tracelab": ("tracelab.jsonl", "tracelab_example_round_trace.jsonl"),
}


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of aiperf's environment, or a skip where it is absent."""
    found = Path(os.environ.get("PERILUNE_ORACLE", "absent")) / "aiperf" / "bin" / "python"
    if not found.exists():
        pytest.skip("PERILUNE_ORACLE names no environment with aiperf")
    return found


def theirs(python: Path, form: str, path: Path) -> list[list[dict[str, Any]]]:
    """aiperf's reading: sessions of rows."""
    done = subprocess.run([python, DRIVER, form, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def known(form: str, name: str) -> Path:
    path = SAMPLES / name if (SAMPLES / name).exists() else FACTS / name
    if not path.exists():
        pytest.skip(f"{name} is not in the reference")
    return path


def like(request: Request, row: dict[str, Any]) -> bool:
    return (request.isl, request.osl) == (row["isl"], row["osl"])


@pytest.mark.parametrize(
    ("form", "name"), [(form, name) for form in ("mooncake", "bailian", "burstgpt") for name in FILES[form]]
)
def test_requests_are_those_of_aiperf(python: Path, form: str, name: str) -> None:
    path = known(form, name)
    grouped = theirs(python, form, path)
    session_of = {id(row): number for number, session in enumerate(grouped) for row in session}
    rows = sorted((row for session in grouped for row in session), key=lambda row: row["t"])
    start = rows[0]["t"]
    rows = [row for row in rows if row["isl"] and row["osl"]]
    ours = list(traffic(path, spread=False).requests)
    assert len(ours) == len(rows)
    assert all(like(request, row) for request, row in zip(ours, rows, strict=True))
    assert [each.arrival_s for each in ours] == pytest.approx([row["t"] - start for row in rows], abs=1e-6)
    assert [list(each.blocks) for each in ours] == [row["ids"] for row in rows]
    if form == "bailian":
        pairs = {(each.session, session_of[id(row)]) for each, row in zip(ours, rows, strict=True)}
        assert len(pairs) == len(grouped) == len({each.session for each in ours})


@pytest.mark.parametrize("name", FILES["weka"])
def test_weka_turns_are_those_of_aiperf(python: Path, name: str) -> None:
    path = known("weka", name)
    ((*rows,),) = theirs(python, "weka", path)
    (head,) = traffic(path).requests
    ours = list(turns(head))
    assert len(ours) == len(rows)
    assert all(like(request, row) for request, row in zip(ours, rows, strict=True))
    assert [[number % 2**40 for number in each.blocks] for each in ours] == [row["ids"] for row in rows]
    assert [each.arrival_s for each in ours[1:]] == [row["think"] for row in rows[1:]]


def test_weka_sub_agents_are_those_of_aiperf(python: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(gzip.decompress((SAMPLES / "weka_trace_0291.json.gz").read_bytes()))
    ((*rows,),) = theirs(python, "weka", path)
    agents = [[row for row in rows if "agent" not in row], *(row["requests"] for row in rows if "agent" in row)]
    ours = [list(turns(head)) for head in traffic(path).requests]
    assert [len(chain) for chain in ours] == [len(chain) for chain in agents]
    for chain, wanted in zip(ours, agents, strict=True):
        assert all(like(request, row) for request, row in zip(chain, wanted, strict=True))
        assert [[number % 2**40 for number in each.blocks] for each in chain] == [row["ids"] for row in wanted]


@pytest.mark.parametrize("name", FILES["tracelab"])
def test_tracelab_rounds_are_those_of_aiperf(python: Path, name: str) -> None:
    path = known("tracelab", name)
    wanted = theirs(python, "tracelab", path)
    ours = [list(turns(head)) for head in traffic(path).requests]
    assert sorted(len(chain) for chain in ours) == sorted(len(chain) for chain in wanted)
    raw = [json.loads(line) for line in path.read_text().splitlines()]
    reasoning = {(row["input_tokens_total"], row["output_tokens"]): row["reasoning_output_tokens"] or 0 for row in raw}
    by_start = {chain[0].isl: chain for chain in ours}
    for rows in wanted:
        chain = by_start[rows[0]["isl"]]
        assert [(each.isl, each.osl + reasoning[each.isl, each.osl]) for each in chain] == [
            (row["isl"], row["osl"]) for row in rows
        ]
        waits = [max(0.0, after["t"] - before["t"] - before["api"]) for before, after in pairwise(rows)]
        assert [each.arrival_s for each in chain[1:]] == pytest.approx(waits, abs=2e-3)
        for (before, after), (sooner, later) in zip(pairwise(rows), pairwise(chain), strict=True):
            repeated = common(before["ids"], after["ids"])
            assert common(list(sooner.blocks), list(later.blocks)) >= repeated
            assert common(list(sooner.blocks)[: len(before["ids"])], list(later.blocks)) == repeated


def common(one: list[int], other: list[int]) -> int:
    """How many leading ids are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
