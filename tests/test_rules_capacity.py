"""Advice on capacity, tried: no edit lowers what runs while more is asked for, and two findings never disagree."""

from __future__ import annotations

import random
import re

import pytest

from perilune.facts.hardware import platform
from perilune.plan.compose import Choice, compose
from perilune.plan.deployment import Workload
from perilune.plan.planned import plan
from perilune.plan.rules import Subject, apply_edits, findings_of, subject_of
from perilune.plan.rules.edits import remove, write
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
    for finding in about:
        if finding.edits:
            before = subject.ledger.workload(8192, 1024)
            after = subject.again(finding.edits).workload(8192, 1024)
            assert before is not None
            assert after is not None
            assert after.admitted > before.admitted


LIMIT = "--max-running-requests"
PROMISE = re.compile(r"then (\d+) requests")
HELD = (
    f"{K3} {LIMIT}",
    f"{K3} --attn-dp-size 2 --mem-fraction-static 0.9 {LIMIT}",
    f"{K3} --disaggregation-mode prefill {LIMIT}",
    f"{K3} --disaggregation-mode decode --disaggregation-decode-extra-slots 16 {LIMIT}",
    f"{K3} --speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark {LIMIT}",
    f"{K3} --dcp-size 8 --mamba-full-memory-ratio 0.2 {LIMIT}",
)


@pytest.mark.parametrize(("asked", "length"), [(640, (8192, 1024)), (40, (190_000, 10_000)), (1000, None)])
@pytest.mark.parametrize("held", HELD)
def test_a_demand_out_of_reach_gets_one_set_of_flags_that_admits_what_it_says(
    held: str, asked: int, length: tuple[int, int] | None
) -> None:
    subject = subject_of(
        Server.parse(f"{held} {asked}"), platform("b300"), workload=Workload(*(length or (None, None)), None)
    )
    found = [f for f in findings_of(subject) if f.id == "admits-less"]
    if running(subject.ledger, subject.workload)[0] >= asked:  # of any length, for none is given
        assert not found
        return
    (finding,) = found
    promised, load = PROMISE.search(finding.fix), Workload(*(length or (8192, 1024)))
    before, after = running(subject.ledger, load)[0], subject.again(finding.edits)
    if not finding.edits:
        assert "No flags admit more" in finding.fix
        return
    assert promised is not None, finding.fix
    assert after.boots
    assert running(after, load)[0] == int(promised[1]) > before
    assert ("the most that flags admit" in finding.fix) == (int(promised[1]) < asked)


def test_flags_for_more_requests_are_none_that_another_rule_takes_back() -> None:
    for held in HELD:
        subject = subject_of(Server.parse(f"{held} 640"), platform("b300"), workload=Workload(8192, 1024))
        (finding,) = [f for f in findings_of(subject) if f.id == "admits-less"]
        before = {f.id for f in findings_of(subject)}
        server = apply_edits(subject.server, finding.edits)
        after = findings_of(subject_of(server, platform("b300"), workload=Workload(8192, 1024)))
        assert {f.id for f in after} <= before, (held, finding.fix)


def test_a_fix_of_a_prediction_says_its_band_and_does_not_stand_on_a_cliff() -> None:
    """A pin takes what the prediction has too much from the KV pool alone: on MI350X it would take all of it."""
    (pool,) = plan(compose(Choice(hardware="mi350x", isl=8192, osl=1024, concurrency=64))).pools
    (finding,) = [f for f in pool.findings if f.id == "admits-less"]
    found = pool.subject.again(finding.edits)
    band = found.workload_range(8192, 1024)
    assert band is not None
    assert band.boots
    assert band.low > 26  # what runs without the fix
    assert f"(within the error band: {band.low} to {band.high})" in finding.fix
    pinned = [write("--mem-fraction-static", "0.92"), *remove("--mamba-full-memory-ratio"), write(PIN, 321)]
    cliff = pool.subject.again(pinned).workload_range(8192, 1024)
    assert cliff is not None
    assert not cliff.boots


def test_a_prefill_server_need_not_hold_every_request_at_once() -> None:
    found = plan(compose(Choice(hardware="b300", mode="pd", isl=8192, osl=1024, concurrency=64)))
    assert found.pools[0].ledger.workload(8192, 1024).admitted < 64
    assert [f.id for f in found.findings if f.severity in ("error", "capacity")] == []


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


@pytest.mark.parametrize("groups", ["--attn-dp-size 8", "--enable-dp-attention --dp-size 8"])
def test_attention_dp_that_keeps_requests_out_is_named_with_what_runs_without_it(groups: str) -> None:
    text = f"--model-path moonshotai/Kimi-K3 --tp-size 8 {groups} --mem-fraction-static 0.98 --disable-radix-cache"
    load = Workload(8192, 1024, 128)
    subject = subject_of(Server.parse(f"{text} --max-running-requests 32"), platform("b300"), workload=load)
    (finding,) = [f for f in findings_of(subject) if f.id == "admits-less"]
    after = subject.again(finding.edits)
    assert after.resolved["attn_dp_size"] < 8
    assert running(after, load)[0] >= 128
    assert "128 requests run at once" in finding.fix
    assert "use more GPUs" not in finding.fix
