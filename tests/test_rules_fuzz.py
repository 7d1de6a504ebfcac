"""Mutated command lines: every rule answers with findings or one clear sentence, never a crash."""

from __future__ import annotations

import random

import pytest

from perilune.errors import PeriluneError
from perilune.facts.hardware import platform, platforms
from perilune.plan.rules import Subject, apply_edits, findings_of, fleet_findings, pair_findings, subject_of
from perilune.plan.server import Server
from test_fuzz import mutated

ENGINES = ("0.5.23", "0.5.23", "0.5.18", "0.5.20", "nightly", "9" * 40)
ROUTERS = (None, "", "--prefill", "--prefill http://[::1 x --decode h:99999999", "--policy power_of_two")


def looked_at(draw: random.Random) -> Subject | None:
    try:
        server = Server.parse(mutated(draw))
        where = platform(draw.choice(list(platforms())))
        return subject_of(server, where, engine=draw.choice(ENGINES), expands=draw.random() < 0.5)
    except PeriluneError:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_survive_any_command(seed: int) -> None:
    draw = random.Random(seed)
    found = [subject for _ in range(60) if (subject := looked_at(draw)) is not None]
    assert len(found) > 20
    for subject in found:
        findings = findings_of(subject)
        for finding in findings:
            assert "\n" not in finding.id
            assert finding.message
            apply_edits(subject.server, finding.edits)
        errors = [finding for finding in findings if finding.severity == "error"]
        assert errors or subject.resolved.accepted or not subject.shape_known
    for left, right in zip(found, reversed(found), strict=True):
        router = draw.choice(ROUTERS)
        pair_findings(left, right, None if router is None else router.split())
    fleet_findings(found)


@pytest.mark.parametrize(
    "flags",
    [
        "--tp-size 8 --mem-fraction-static -1e308",
        "--tp-size 281474976710656 --dcp-size 281474976710655",
        "--tp-size 281474976710657 --attn-dp-size 281474976710656",
        "--tp-size 8 --disable-radix-cache --max-running-requests 281474976710656",
    ],
)
def test_absurd_sizes_are_judged_at_once(flags: str) -> None:
    server = Server.parse(f"--model-path moonshotai/Kimi-K3 {flags}")
    errors = [f for f in findings_of(subject_of(server, platform("b300"))) if f.severity == "error"]
    assert errors
    assert all(error.fix for error in errors)
