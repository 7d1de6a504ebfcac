"""Published recipes: no error where the engine accepts, one with its reason where it refuses, and little noise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perilune.errors import Refused
from perilune.facts.hardware import platform
from perilune.facts.options import overlays
from perilune.facts.recipes import hardware, recipes_of
from perilune.plan.compose import Choice, compose
from perilune.plan.deployment import Pool, Workload
from perilune.plan.memory import Ledger, Measured, ledger
from perilune.plan.planned import assumed
from perilune.plan.resolve import resolve
from perilune.plan.rules import Finding, apply_edits, composed_subject, findings_of, subject_of
from perilune.plan.rules.subject import sized
from perilune.plan.server import Server

FEW = 8


def pools() -> Iterator[tuple[str, Pool]]:
    """Every published cell, plain and with each option of each overlay, and the presets."""
    variants = [{}, *({overlay.id: option.id} for overlay in overlays() for option in overlay.options)]
    for name in hardware():
        for recipe in recipes_of(name):
            strategy = "prefill_strategy" if recipe.role == "prefill" else "strategy"
            presets = [{"preset": p, "gpus": n} for p in ("peak-throughput", "peak-capacity") for n in (16, 64)]
            for variant in [*variants, *presets]:
                fields = {"hardware": name, "mode": recipe.role, strategy: recipe.strategy, **variant}
                try:
                    found = compose(Choice(**fields)).pools[0]
                except Refused:
                    continue
                yield " ".join(map(str, fields.values())), found


def read(pool: Pool) -> tuple[Server, Ledger, list[Finding]]:
    server = assumed(pool.servers[0], pool.unpublished)
    found = ledger(resolve(server, platform(pool.platform)))
    return server, found, findings_of(composed_subject(pool, server, found, Workload()))


def test_published_recipes_raise_errors_exactly_where_the_engine_refuses() -> None:
    seen: set[tuple[str, Server]] = set()
    volume = []
    for name, pool in pools():
        if (pool.platform, pool.server) in seen:
            continue
        seen.add((pool.platform, pool.server))
        server, found, findings = read(pool)
        errors = [finding for finding in findings if finding.severity == "error"]
        volume.append(len(findings))
        if found.boots:
            assert not errors, f"{name}: {errors[0].id}: {errors[0].message}"
            continue
        known = [f for f in findings if f.severity in ("error", "capacity")]
        assert known, f"{name}: {found.error}"
        assert known[0].fix, f"{name}: {known[0].message}"
        if known[0].edits:
            assert sized(apply_edits(server, known[0].edits), found).boots, f"{name}: {known[0].fix}"
    assert len(seen) > 250
    assert max(volume) <= FEW
    assert sum(volume) / len(volume) < 2


K3 = "--model-path moonshotai/Kimi-K3 --tp-size 8"


def findings(text: str, where: str = "b300", **rest: object) -> dict[str, Finding]:
    subject = subject_of(Server.parse(text), platform(where), **rest)  # type: ignore[arg-type]
    return {finding.id: finding for finding in findings_of(subject)}


def test_a_refusal_from_predicted_memory_says_so_and_one_from_a_boot_log_does_not() -> None:
    low = f"{K3} --mem-fraction-static 0.5"
    assert "Predicted without a boot log" in findings(low)["memory-fraction-low"].message
    exact = findings(low, measured=Measured(265.0, 60.0))["memory-fraction-low"]
    assert exact.severity == "error"
    assert "Predicted" not in exact.message
    assert "Weights leave 60.0 GiB, a fraction of 0.5 keeps 132.5 GiB" in exact.message


def test_the_edge_of_a_prediction_is_no_error() -> None:
    severities = [
        findings(f"{K3} --mem-fraction-static {hundredths / 1000}").get("memory-fraction-low")
        for hundredths in range(700, 780, 2)
    ]
    kinds = [found and found.severity for found in severities]
    changes = [kind for kind, last in zip(kinds, [None, *kinds], strict=False) if kind != last]
    assert changes == ["error", "capacity", None]


@pytest.mark.parametrize(("fraction", "way"), [("0.5", "higher"), ("0.98", "lower")])
def test_memory_advice_points_the_right_way(fraction: str, way: str) -> None:
    found = findings(f"{K3} --mem-fraction-static {fraction}")
    finding = found.get("memory-fraction-low") or found["memory-headroom"]
    (edit,) = finding.edits
    assert edit.name == "--mem-fraction-static"
    assert (float(edit.value or 0) > float(fraction)) == (way == "higher")
    assert "memory-fraction-low" not in findings(f"{K3} --mem-fraction-static {edit.value}")


def test_values_that_come_later_are_no_errors_under_a_shell() -> None:
    text = f"{K3} --nnodes 1 --node-rank '$NODE_RANK' --host '$HOST_IP'"
    assert not [f for f in findings(text, expands=True).values() if f.severity == "error"]
    assert "env-unexpanded" in findings(text)
    assert "env-unexpanded" not in findings(f"{K3} --node-rank '$(LWS_WORKER_INDEX)'")


def test_a_shape_that_comes_later_makes_no_error_of_memory() -> None:
    found = findings("--model-path moonshotai/Kimi-K3 --tp-size '$TP'", expands=True)
    assert not [f for f in found.values() if f.severity == "error"]


def test_no_finding_shows_a_secret() -> None:
    found = findings(f"HF_TOKEN=hf_abcdef SGLANG_API_KEYS=sk-hidden NCCL_SOCKET_IFNAM=eth0 {K3} --api-key sk-hidden")
    text = " ".join(f"{f.message} {f.fix} {f.edits}" for f in found.values())
    assert "hidden" not in text
    assert "abcdef" not in text


def test_an_old_release_takes_old_spellings() -> None:
    text = f"{K3} --mamba-scheduler-strategy extra_buffer --mem-fraction-static 0.85"
    assert findings(text)["flag-gone"].severity == "error"
    old = findings(text, engine="0.5.18")
    assert not [f for f in old.values() if f.severity == "error"]
    assert "0.5.18" in old["version-unknown"].message
    assert "not among the releases" in findings(text, engine="0.6.0")["version-unknown"].message
