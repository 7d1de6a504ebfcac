"""Advice on capacity, tried: no edit lowers what runs while more is asked for, and two findings never disagree."""

from __future__ import annotations

import random
import re

import pytest

from perilune.facts.hardware import platform
from perilune.plan.deployment import Workload
from perilune.plan.rules import Edit, Subject, findings_of, subject_of
from perilune.plan.rules.splitting import asked_requests, running
from perilune.plan.server import Server

K3 = "--model-path moonshotai/Kimi-K3 --tp-size 8"
PIN = "--max-mamba-cache-size"
ABOUT = ("admits-less", "state-pin", "state-pin-idle", "state-split", "state-pin-and-ratio", "spec-48")
LENGTHS = ((1024, 128), (8192, 1024), (64_000, 2_000))


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        (64, "--max-mamba-cache-size 160"),  # whole requests, none to spare
        (64, "--max-mamba-cache-size 163"),  # idle slots
        (32, "--attn-dp-size 2 --max-mamba-cache-size 150 --mem-fraction-static 0.9"),
        (512, "--max-mamba-cache-size 303"),  # more than fit at any split
    ],
)
@pytest.mark.parametrize("by", ["concurrency", "--max-running-requests"])
def test_pin_advice_never_lowers_what_runs_while_more_is_asked(asked: int, flags: str, by: str) -> None:
    limit = f" {by} {asked}" if by.startswith("--") else ""
    server = Server.parse(f"--model-path moonshotai/Kimi-K3 --tp-size 8 {flags}{limit}")
    load = Workload(8192, 1024, None if limit else asked)
    subject = subject_of(server, platform("b300"), workload=load)
    about = [f for f in findings_of(subject) if f.id in ("state-pin", "state-pin-idle", "admits-less")]
    assert about
    pins = {edit.value for f in about for edit in f.edits if edit.name == "--max-mamba-cache-size"}
    assert len(pins) <= 1  # every finding advises the same pin
    for pin in pins:
        before = subject.ledger.workload(8192, 1024)
        after = subject.again([Edit("set", "--max-mamba-cache-size", pin)]).workload(8192, 1024)
        assert before is not None
        assert after is not None
        assert after.admitted > before.admitted


@pytest.mark.parametrize(("asked", "length"), [(640, (8192, 1024)), (40, (190_000, 10_000)), (4096, None)])
def test_a_demand_out_of_reach_gets_the_best_split_as_a_first_step(asked: int, length: tuple[int, int] | None) -> None:
    server = Server.parse(f"--model-path moonshotai/Kimi-K3 --tp-size 8 --max-running-requests {asked}")
    subject = subject_of(server, platform("b300"), workload=Workload(*(length or (None, None)), None))
    (finding,) = [f for f in findings_of(subject) if f.id == "admits-less"]
    promised = re.search(r"which admits (\d+)", finding.fix)
    assert promised is not None, finding.fix
    load = subject.again(finding.edits).workload(*(length or (8192, 1024)))
    before = subject.ledger.workload(*(length or (8192, 1024)))
    assert load is not None
    assert before is not None
    assert load.admitted == int(promised[1]) > before.admitted


def drawn(draw: random.Random) -> Subject:
    """A K3 server with a pin, a ratio, a limit and a workload, each there or not."""
    dp = draw.choice((1, 1, 2, 4, 8))
    words = [K3, f"--attn-dp-size {dp} --mem-fraction-static {draw.choice((0.85, 0.9, 0.92))}"]
    if draw.random() < 0.7:
        words.append(f"{PIN} {draw.randint(dp * 6, 400)}")
    if draw.random() < 0.4:
        words.append(f"--mamba-full-memory-ratio {draw.choice((0.1, 0.5, 2, 9))}")
    if draw.random() < 0.5:
        words.append(f"--max-running-requests {draw.choice((1, 8, 16, 33, 64, 100, 512))}")
    if draw.random() < 0.3:
        words.append("--mamba-radix-cache-strategy extra_buffer_lazy")
    if draw.random() < 0.3:
        words.append("--speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark")
        words += ["--enable-dp-lm-head"] if dp > 1 else []
    load = Workload(*draw.choice(LENGTHS), draw.choice((None, 4, 16, 40, 64, 200, 1000)))
    return subject_of(Server.parse(" ".join(words)), platform("b300"), workload=load)


@pytest.mark.parametrize("seed", range(6))
def test_every_edit_admits_no_less_and_all_agree(seed: int) -> None:
    draw, tried = random.Random(seed), 0
    for _ in range(60):
        s = drawn(draw)
        if not s.ledger.boots:
            continue
        asked, now = asked_requests(s), running(s.ledger, s.workload)[0]
        pins = set()
        for finding in findings_of(s):
            if finding.id not in ABOUT or not finding.edits:
                continue
            tried += 1
            after = s.again(finding.edits)
            assert after.boots, (s.server, finding.fix)
            runs = running(after, s.workload)[0]
            if asked is not None and asked > now:
                assert runs >= now, (s.server, s.workload, finding)
                assert runs > now or finding.id not in ("admits-less", "state-split"), (s.server, s.workload, finding)
            pins |= {edit.value for edit in finding.edits if edit.name == PIN}
        assert len(pins) <= 1, (s.server, s.workload, pins)
    assert tried > 20
