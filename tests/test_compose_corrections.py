"""What the cookbook knows to fail although the engine's argument stage accepts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perilune.plan.compose import Choice, compose, parse_env, parse_set
from perilune.plan.compose.corrections import CORRECTIONS, corrections
from perilune.plan.deployment import Deployment

HEAD = {"set": parse_set, "env": parse_env}


def composed(text: str, *edits: str) -> Deployment:
    """A choice written as `b300 mode=pd`, with edits such as `set decode:page-size=32`."""
    hardware, *rest = text.split()
    named = {key: int(value) if value.isdigit() else value for key, value in (w.split("=") for w in rest)}
    overrides = tuple(HEAD[kind](body) for kind, _, body in (edit.partition(" ") for edit in edits))
    return compose(Choice(hardware=hardware, overrides=overrides, **named))  # type: ignore[arg-type]


def found(deployment: Deployment) -> list[tuple[str, str]]:
    return [(finding.id, finding.severity) for finding in corrections(deployment)]


@pytest.mark.parametrize(
    ("choice", "edits", "expected"),
    [
        ("b300 quant=nvfp4 preset=peak-throughput gpus=16", (), [("Q-NVFP4-RUNNER", "error")]),
        ("b300 quant=nvfp4", (), []),
        ("b300 mode=pd quant=nvfp4", (), []),
        ("gb200 mode=pd strategy=low-latency", (), []),
        ("b300 mode=pd", ("set decode:pp-size=2",), [("PD-PP-MATCH", "error")]),
        ("b300 mode=pd prefill_strategy=long-context", (), []),
        ("b300 mode=pd", ("set decode:kv-cache-dtype=fp8_e4m3",), [("PD-KV-DTYPE", "error")]),
        ("b300 mode=pd", ("set kv-cache-dtype=fp8_e4m3",), []),
        ("b300 mode=pd", ("set decode:kv-cache-dtype=bfloat16",), []),  # what auto is
        ("b300 mode=pd", ("set prefill:page-size=32",), [("PD-PAGE-SIZE", "error")]),
        ("b300 mode=pd", ("set prefill:page-size=64",), []),  # what the engine takes by itself
        ("b300 strategy=low-latency", ("env SGLANG_RAGGED_VERIFY_MODE=compact",), [("SPEC-RAGGED-TABLE", "advice")]),
        ("mi355x", ("env AITER_SITUV2_A4W4=1",), [("AMD-SITU-BOTH", "advice")]),
        ("mi355x", (), []),
        ("b300", ("env SGLANG_ROCM_K3_KDA_FUSED_BACKEND=aiter",), [("AMD-ONLY", "advice")]),
        ("b300", ("set moe-a2a-backend=megamoe",), [("DCP-EP-A2A", "advice")]),
        ("gb200 mode=decode strategy=high-throughput", ("set moe-a2a-backend=megamoe",), []),
    ],
)
def test_what_each_rule_finds(choice: str, edits: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    assert found(composed(choice, *edits)) == expected


def test_a_router_that_names_another_bootstrap_port() -> None:
    deployment = composed("b300 mode=pd")
    assert deployment.router is not None
    router = tuple("8999" if word == "8998" else word for word in deployment.router)
    assert found(replace(deployment, router=router)) == [("PD-BOOTSTRAP", "error")]


def test_a_width_that_is_no_number_is_left_to_resolution() -> None:
    deployment = composed("b300 mode=pd")
    prefill, decode = deployment.pools
    odd = replace(decode, server=decode.server.set("--pp-size", "two").set("--dcp-size", "9" * 5000))
    assert corrections(replace(deployment, pools=(prefill, odd))) == ()


def test_every_finding_has_a_fix_a_source_and_its_pool() -> None:
    deployment = composed("b300 mode=pd", "set decode:pp-size=2", "set decode:kv-cache-dtype=fp8_e4m3")
    for finding in corrections(deployment):
        assert finding.fix.endswith(".")
        assert "SGLang" in finding.source
        assert finding.pool == "decode"
        assert any(finding.id in name for name in CORRECTIONS)
