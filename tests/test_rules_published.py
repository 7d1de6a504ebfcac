"""Published recipes: no error where the engine accepts, one with its reason where it refuses, and little noise."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from perilune.errors import Refused
from perilune.facts.hardware import platform
from perilune.facts.options import overlays
from perilune.facts.recipes import hardware, recipes_of
from perilune.plan.compose import Choice, compose
from perilune.plan.deployment import Pool, Workload
from perilune.plan.memory import Ledger, Measured, ledger
from perilune.plan.planned import assumed, plan
from perilune.plan.resolve import resolve
from perilune.plan.rules import (
    FLEET_RULES,
    PAIR_RULES,
    Finding,
    apply_edits,
    composed_subject,
    findings_of,
    fleet_findings,
    ports,
    ranks,
    subject_of,
)
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
    """As they are composed, and as somebody pastes them; which the engine refuses is what the real one was asked."""
    seen: set[tuple[str, Server]] = set()
    volume = []
    for name, pool in pools():
        if (pool.platform, pool.server) in seen:
            continue
        seen.add((pool.platform, pool.server))
        server, found, findings = read(pool)
        pasted = findings_of(subject_of(server, platform(pool.platform), expands=True))
        errors = [f for f in (*findings, *pasted) if f.severity == "error" and f.id != "env-placeholder"]
        volume.append(len([f for f in findings if "then still does not start" not in f.message]))
        if found.resolved.accepted:
            assert not errors, f"{name}: {errors[0].id}: {errors[0].message}"
        else:
            assert "does not start with this command" in errors[0].message, name
            assert all("then still does not start" in f.message for f in findings[1:] if f.severity == "error"), name
        if found.boots:
            continue
        known = [f for f in findings if f.severity in ("error", "capacity")]
        assert known, f"{name}: {found.error}"
        assert known[0].fix, f"{name}: {known[0].message}"
        if known[0].edits:
            better = apply_edits(server, [edit for f in known if "start" in f.message for edit in f.edits])
            assert sized(better, found).boots, f"{name}: {known[0].fix}"
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


SEVERAL = (
    "sglang serve --model-path moonshotai/Kimi-K3 --tp 8 --dcp-size 8 --mem-fraction-static 0.97 "
    "--max-running-requests 256 --kv-cache-dtype fp8 --reasoning-parser kimi-k3 --speculative-algorithm EAGLE "
    "--speculative-num-steps 3 --page-size 1 --disable-radix-cache --enable-dp-attention --dp 8"
)


def test_every_refusal_on_the_way_is_a_finding_with_its_own_reason_and_edit() -> None:
    """No edit is made for a reason that is not said, and no flag is left without the one that it belongs to."""
    server = Server.parse(SEVERAL)
    errors = [f for f in findings_of(subject_of(server, platform("b300"))) if f.severity == "error"]
    assert [f.id for f in errors] == [
        "flag-value", "flag-value", "spec-draft-shape", "spec-dp-lm-head", "memory-fraction-low", "state-requests-large"
    ]  # fmt: skip
    assert all(f.edits and f.flags[0] in {flag.name for flag in server.flags} for f in errors)
    for number in range(1, len(errors) + 1):
        server = apply_edits(server, errors[number - 1].edits)
        left = [f.id for f in findings_of(subject_of(server, platform("b300"))) if f.severity == "error"]
        assert left == [f.id for f in errors[number:]]
    assert (server.value("--kv-cache-dtype"), server.value("--reasoning-parser")) == ("fp8_e4m3", "kimi_k3")
    assert (server.value("--speculative-algorithm"), server.has("--speculative-num-steps")) == ("DSPARK", False)


@pytest.mark.parametrize(
    ("written", "flag", "meant"),
    [
        ("--reasoning-parser kimi-k3", "--reasoning-parser", "kimi_k3"),
        ("--tool-call-parser KIMI_K3", "--tool-call-parser", "kimi_k3"),
        ("--attention-backend trtllm-mla", "--attention-backend", "trtllm_mla"),
        ("--moe-runner-backend marlni", "--moe-runner-backend", "marlin"),
        ("--kv-cache-dtype fp8", "--kv-cache-dtype", "fp8_e4m3"),
        ("--tool-call-parser zzz", "--tool-call-parser", None),
    ],
)
def test_a_misspelled_value_becomes_the_nearest_one_that_the_flag_takes(
    written: str, flag: str, meant: str | None
) -> None:
    server = Server.parse(f"{K3} {written}")
    (finding,) = [f for f in findings_of(subject_of(server, platform("b300"))) if f.id == "flag-value"]
    assert finding.flags == (flag,)
    assert apply_edits(server, finding.edits).value(flag) == meant


def test_removing_what_leads_removes_what_it_leads() -> None:
    """An algorithm that no edit makes run goes with its steps, its tree and its draft."""
    text = f"{K3} --speculative-algorithm STANDALONE --speculative-num-steps 3 --speculative-eagle-topk 1 --dp 2"
    server = Server.parse(f"{text} --enable-dp-attention --speculative-num-draft-tokens 4")
    (finding,) = [f for f in findings_of(subject_of(server, platform("b300"))) if f.severity == "error"]
    left = [flag.name for flag in apply_edits(server, finding.edits).flags]
    assert not [name for name in left if name.startswith("--speculative")]


@pytest.mark.parametrize(("fraction", "way"), [("0.5", "higher"), ("0.98", "lower")])
def test_memory_advice_points_the_right_way(fraction: str, way: str) -> None:
    found = findings(f"{K3} --mem-fraction-static {fraction}")
    finding = found.get("memory-fraction-low") or found["memory-headroom"]
    (edit,) = finding.edits
    assert edit.name == "--mem-fraction-static"
    assert (float(edit.value or 0) > float(fraction)) == (way == "higher")
    assert not re.search(r"Try: \(1\)|Raise --mem-fraction-static|increase --mem", finding.message)  # the engine's own
    assert "memory-fraction-low" not in findings(f"{K3} --mem-fraction-static {edit.value}")


def test_a_refusal_quotes_what_is_wrong_and_not_the_engines_advice() -> None:
    """The engine says to raise the fraction above 0.733 where a pin takes all that 0.845 leaves."""
    message = findings(f"{K3} --max-mamba-cache-size 2000")["state-pin-large"].message
    assert "Loaded weights leave no GPU memory for the KV cache" in message
    assert "Raise" not in message
    assert "Error:" not in message


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


def test_the_nodes_of_every_published_recipe_raise_nothing_together() -> None:
    """Each node with its own command, the accelerators of its platform, in a group of their number."""
    count = 0
    for name in hardware():
        for recipe in recipes_of(name):
            strategy = "prefill_strategy" if recipe.role == "prefill" else "strategy"
            pool = compose(Choice(hardware=name, mode=recipe.role, **{strategy: recipe.strategy})).pools[0]
            where = platform(pool.platform)
            nodes = [
                subject_of(
                    server, where, gpus_visible=where.gpus_per_node, group_size=pool.nodes, host=f"{name}-{rank}"
                )
                for rank, server in enumerate(pool.servers)
            ]
            count += len(nodes) > 1
            own = [finding for node in nodes for rule in (*ranks.RULES, *ports.RULES) for finding in rule(node)]
            loud = [finding for finding in own if finding.id != "port-loopback"]
            assert not [*fleet_findings(nodes), *loud], (name, recipe.strategy)
    assert count > 10


def test_published_pairs_raise_no_error_as_pairs() -> None:
    rules = {rule.id for rule in (*PAIR_RULES, *FLEET_RULES)}
    count = 0
    for name in hardware():
        roles = {role: [r.strategy for r in recipes_of(name) if r.role == role] for role in ("prefill", "decode")}
        for prefill in dict.fromkeys(roles["prefill"]):
            for decode in dict.fromkeys(roles["decode"]):
                try:
                    deployment = compose(Choice(hardware=name, mode="pd", prefill_strategy=prefill, strategy=decode))
                except Refused:
                    continue
                count += 1
                found = [f for f in plan(deployment).findings if f.id in rules]
                assert not [f for f in found if f.severity == "error"], (name, prefill, decode)
    assert count > 15
