"""Every rule: an example that trips it, its sound form, and a fix that says what it edits and silences the rule."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

import pytest

from perilune.facts.hardware import platform
from perilune.facts.rule_examples import Example, examples
from perilune.plan.deployment import Workload
from perilune.plan.rules import (
    FLEET_RULES,
    GROUPS,
    PAIR_RULES,
    Edit,
    Finding,
    Subject,
    apply_edits,
    findings_of,
    fleet_findings,
    pair_findings,
    subject_of,
)
from perilune.plan.server import Server

EVERY = {"argvalues": examples(), "ids": [f"{e.id}: {e.trips or e.prefill or e.servers[0]}"[:90] for e in examples()]}
SEVERITIES = {rule.id: rule.severity for rules in (*GROUPS.values(), PAIR_RULES, FLEET_RULES) for rule in rules}
NAME = re.compile(r"--[a-z][a-z0-9_-]+|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
ROUNDS = 8


def subjects(example: Example, servers: Sequence[Server]) -> list[Subject]:
    load = example.load
    none = (None,) * len(servers)
    return [
        subject_of(
            server,
            platform(example.at),
            workload=Workload(load.isl, load.osl, load.concurrency),
            engine=example.engine,
            image=image,
            gpus_visible=example.gpus,
            group_size=example.group,
            host=host or "",
        )
        for server, image, host in zip(servers, example.images or none, example.hosts or none, strict=True)
    ]


def servers_of(example: Example) -> list[Server]:
    return [Server.parse(command) for command in example.commands]


def judged(example: Example, servers: Sequence[Server]) -> list[Finding]:
    """What the rules of the example's kind say: of one server, of a pair, or of a fleet."""
    found = subjects(example, servers)
    if example.trips is not None:
        return findings_of(found[0])
    if example.servers:
        return fleet_findings(found)
    router = None if example.router is None else shlex.split(example.router)
    return pair_findings(found[0], found[1], router)


def told(findings: Sequence[Finding]) -> list[str]:
    return [f"{f.severity} {f.id}: {f.message} {f.fix}" for f in findings]


def edited(servers: Sequence[Server], finding: Finding) -> list[Server]:
    """The servers after a finding's edits: the one, the role, or the member that the finding is of."""
    at = 0 if len(servers) == 1 or finding.pool == "prefill" else 1
    at = at if finding.member is None else finding.member
    return [apply_edits(server, finding.edits) if i == at else server for i, server in enumerate(servers)]


@pytest.mark.parametrize("example", **EVERY)
def test_the_example_trips_its_rule_with_the_severity_it_declares(example: Example) -> None:
    findings = judged(example, servers_of(example))
    own = [f for f in findings if f.id == example.id]
    assert own, told(findings)
    assert {f.severity for f in own} == {SEVERITIES.get(example.id, "error")}
    assert all(f.message and f.fix and f.source for f in findings), told(findings)
    assert all(text == " ".join(text.split()) for f in findings for text in (f.message, f.fix)), told(findings)


@pytest.mark.parametrize("example", **EVERY)
def test_the_sound_form_raises_neither_the_rule_nor_an_error(example: Example) -> None:
    sound = example.sound_form
    assert sound != example
    findings = judged(sound, servers_of(sound))
    if example.trips is None:
        findings += [f for subject in subjects(sound, servers_of(sound)) for f in findings_of(subject)]
    wrong = [f for f in findings if f.id == example.id or f.severity == "error"]
    assert not wrong, told(wrong)


def names(edits: Sequence[Edit]) -> set[str]:
    return {e.name for e in edits} | {e.value or "" for e in edits if e.action == "rename"}


@pytest.mark.parametrize("example", **EVERY)
def test_the_fix_names_what_its_edits_change(example: Example) -> None:
    for finding in judged(example, servers_of(example)):
        if not finding.edits:
            continue
        said, changed = set(NAME.findall(finding.fix)), names(finding.edits)
        assert changed == said, told([finding])
        values = {e.value for e in finding.edits if e.action in ("set", "env") and e.value}
        assert all(value in finding.fix for value in values), told([finding])


@pytest.mark.parametrize("example", **(EVERY | {"argvalues": [e for e in examples() if not e.keeps], "ids": None}))
def test_the_fix_silences_the_rule(example: Example) -> None:
    servers, found = servers_of(example), list[Finding]()
    for _ in range(ROUNDS):
        found = [f for f in judged(example, servers) if f.id == example.id or f.severity == "error"]
        if not found:
            return
        assert any(f.edits for f in found), told(found)
        for finding in found:
            servers = edited(servers, finding)
    pytest.fail(f"still {told(found)}")


@pytest.mark.parametrize("example", **EVERY)
def test_the_edits_of_what_is_no_error_make_none(example: Example) -> None:
    servers = servers_of(example)
    before = judged(example, servers)
    if any(f.severity == "error" for f in before):
        return
    for finding in before:
        after = judged(example, edited(servers, finding)) if finding.edits else []
        assert not [f for f in after if f.severity == "error"], told([finding, *after])


def test_a_sound_pair_raises_nothing() -> None:
    example = Example(
        id="",
        sound="",
        prefill="K3 PREFILL --port 30000",
        decode="K3 DECODE --port 30100 --dcp-size 8",
        router="--pd-disaggregation --prefill http://10.0.0.1:30000 8998 --decode http://10.0.0.2:30100",
    )
    assert judged(example, servers_of(example)) == []


HEAD = "--model-path moonshotai/Kimi-K3 --tp-size 16 --ep-size 16 --nnodes 2 --dist-init-addr 10.0.0.1:20000"


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ([f"{HEAD} --node-rank 0", f"{HEAD} --node-rank 1"], []),
        ([f"{HEAD} --node-rank 0", f"{HEAD} --node-rank 0"], ["pool-rank-twice"]),
        ([f"{HEAD} --node-rank 0", HEAD], ["pool-rank-twice"]),
        ([f"{HEAD} --node-rank 1"], []),
        ([f"{HEAD} --node-rank 1", f"{HEAD} --node-rank 2"], ["pool-rank-gap"]),
        ([f"{HEAD} --node-rank 0", f"{HEAD} --node-rank '$(LWS_WORKER_INDEX)'"], []),
        ([f"{HEAD} --node-rank 0 --nnodes 4", f"{HEAD} --node-rank '$(LWS_WORKER_INDEX)'"], ["pool-differs"]),
        ([f"{HEAD} --node-rank 0", f"{HEAD} --node-rank 1 --pp-size 2 --tp-size 8"], ["pool-differs"] * 2),
        # A node of unknown rank that meets elsewhere is another server's.
        ([f"{HEAD} --node-rank 0", f"{HEAD} --node-rank '$RANK' --tp-size 32 --dist-init-addr 10.0.0.3:20000"], []),
        # Two groups whose addresses are known only where they run are not taken to be one.
        ([f"{HEAD} --dist-init-addr '$(LWS_LEADER_ADDRESS):20000' --node-rank 0"] * 2, []),
        # Two servers with addresses of their own.
        ([f"{HEAD} --node-rank 0", f"{HEAD} --node-rank 0 --dist-init-addr 10.0.0.3:20000"], []),
    ],
)
def test_nodes_of_one_server_are_told_from_servers(commands: list[str], said: list[str]) -> None:
    found = [subject_of(Server.parse(command), platform("h200"), expands=True) for command in commands]
    assert [f.id for f in fleet_findings(found)] == said


def test_a_subject_of_one_machine_keeps_what_it_was_given() -> None:
    found = subject_of(Server.parse("--model-path moonshotai/Kimi-K3 --tp-size 8"), platform("b300"), gpus_visible=4)
    assert [f.id for f in findings_of(found) if f.severity == "error"] == ["node-gpus-visible"]
    assert not [f for f in findings_of(replace(found, gpus_visible=8)) if f.severity == "error"]
