"""Everything in this folder compares with the real SGLang; without it, everything here is skipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .oracle import Oracle, find_oracle

PLATFORM_NAMES = {"npu": "a3"}  # what the reference calls a platform, and what we call it


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    """The real engine, or a skip where it is absent."""
    found = find_oracle()
    if found is None:
        pytest.skip("PERILUNE_ORACLE and PERILUNE_FACTS do not name the real engine and the reference")
    return found


@pytest.fixture(scope="session")
def verdict_of(oracle: Oracle, request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The engine's verdict on a case. The cases of all collected tests are judged together, once."""
    params = (getattr(item, "callspec", None) for item in request.session.items)
    cases = [spec.params["case"] for spec in params if spec is not None and "case" in spec.params]
    judged = [case for case in cases if isinstance(case, dict) and "kind" in case]
    verdicts = {case["id"]: verdict for case, verdict in zip(judged, oracle.judge(judged), strict=True)}

    def find(case: dict[str, Any]) -> dict[str, Any]:
        verdict = verdicts[case["id"]]
        if verdict.get("stage") == "harness":
            pytest.fail(f"the engine could not be asked: {verdict.get('error')}")
        return verdict

    return find


def reference(name: str) -> list[dict[str, Any]]:
    """The entries of a reference file of `memory/`, platforms by our names; empty where it is absent."""
    found = find_oracle()
    if found is None:
        return []
    content = json.loads((found.scripts / name).read_text(encoding="utf-8"))
    entries = content["results"] if isinstance(content, dict) else content
    for entry in entries:
        for place in (entry, entry.get("input", {})):
            if "platform" in place:
                place["platform"] = PLATFORM_NAMES.get(place["platform"], place["platform"])
    return entries
