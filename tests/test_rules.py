"""Every rule: an example that trips it, one that does not, and a fix after which it is silent."""

from __future__ import annotations

import shlex

import pytest

from perilune.facts.hardware import platform
from perilune.facts.rule_examples import Example, examples
from perilune.plan.deployment import Workload
from perilune.plan.rules import Finding, Subject, apply_edits, findings_of, fleet_findings, pair_findings, subject_of
from perilune.plan.server import Server

ONE = [example for example in examples() if example.trips is not None]
PAIRS = [example for example in examples() if example.prefill is not None]
FLEETS = [example for example in examples() if example.servers]
ROUNDS = 8


def subject(example: Example, server: Server, image: str | None = None) -> Subject:
    load = example.load
    return subject_of(
        server,
        platform(example.at),
        workload=Workload(load.isl, load.osl, load.concurrency),
        engine=example.engine,
        image=image or example.image,
    )


def read(example: Example, text: str | None) -> Server:
    return Server.parse(example.command(text or ""))


def ids(findings: list[Finding]) -> set[str]:
    return {finding.id for finding in findings}


def named(found: list[Example]) -> dict[str, object]:
    return {"argvalues": found, "ids": [f"{e.id}: {e.trips or e.prefill or e.servers[0]}"[:90] for e in found]}


@pytest.mark.parametrize("example", **named(ONE))
def test_the_example_trips_its_rule(example: Example) -> None:
    findings = findings_of(subject(example, read(example, example.trips)))
    assert example.id in ids(findings), [f"{f.id}: {f.message}" for f in findings]
    assert all(
        f.message and (f.fix or f.id in ("rewritten", "boot-warning") or f.severity == "advice") for f in findings
    )


@pytest.mark.parametrize("example", **named([e for e in ONE if e.sound]))
def test_the_sound_form_does_not(example: Example) -> None:
    findings = findings_of(subject(example, read(example, example.sound)))
    assert example.id not in ids(findings), [f.message for f in findings if f.id == example.id]
    assert not [f for f in findings if f.severity == "error"], [f"{f.id}: {f.message}" for f in findings]


@pytest.mark.parametrize("example", **named([e for e in ONE if not e.keeps]))
def test_the_fix_silences_the_rule(example: Example) -> None:
    server = read(example, example.trips)
    for _ in range(ROUNDS):
        found = [f for f in findings_of(subject(example, server)) if f.id == example.id or f.severity == "error"]
        if not found:
            return
        assert any(f.edits for f in found), [f"{f.id}: {f.message}" for f in found]
        for finding in found:
            server = apply_edits(server, finding.edits)
    pytest.fail(f"still {[f.id for f in found]} with {server.display()}")


def pair(example: Example) -> tuple[Server, Server]:
    return read(example, example.prefill), read(example, example.decode)


def judged(example: Example, prefill: Server, decode: Server) -> list[Finding]:
    images = example.images or (None, None)
    router = None if example.router is None else shlex.split(example.router)
    return pair_findings(subject(example, prefill, images[0]), subject(example, decode, images[1]), router)


@pytest.mark.parametrize("example", **named(PAIRS))
def test_the_pair_trips_its_rule(example: Example) -> None:
    findings = judged(example, *pair(example))
    assert example.id in ids(findings), [f"{f.id}: {f.message}" for f in findings]


@pytest.mark.parametrize("example", **named([e for e in PAIRS if not e.keeps]))
def test_the_fix_of_the_pair_silences_the_rule(example: Example) -> None:
    prefill, decode = pair(example)
    for finding in judged(example, prefill, decode):
        if finding.pool == "prefill":
            prefill = apply_edits(prefill, finding.edits)
        else:
            decode = apply_edits(decode, finding.edits)
    left = judged(example, prefill, decode)
    assert example.id not in ids(left), [f.message for f in left if f.id == example.id]


def test_a_sound_pair_raises_nothing() -> None:
    example = Example(
        id="",
        prefill="K3 PREFILL --port 30000",
        decode="K3 DECODE --port 30100 --dcp-size 8",
        router="--pd-disaggregation --prefill http://10.0.0.1:30000 8998 --decode http://10.0.0.2:30100",
    )
    assert judged(example, *pair(example)) == []


@pytest.mark.parametrize("example", **named(FLEETS))
def test_the_fleet_trips_its_rule(example: Example) -> None:
    images = example.images or (None,) * len(example.servers)
    found = [subject(example, read(example, text), image) for text, image in zip(example.servers, images, strict=True)]
    assert example.id in ids(fleet_findings(found))
