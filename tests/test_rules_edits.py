"""Flags drawn beside each other: advice stops no server, costs no requests unsaid, and silences its own finding."""

from __future__ import annotations

import random

import pytest

from perilune.facts.hardware import platform
from perilune.plan.deployment import Workload
from perilune.plan.rules import Finding, Subject, apply_edits, findings_of, subject_of
from perilune.plan.rules.splitting import asked_requests, running
from perilune.plan.server import Server

K3 = "--model-path moonshotai/Kimi-K3"
TWO_NODES = "--nnodes 2 --dist-init-addr 10.0.0.1:20000"
BASES = {
    "b300": f"{K3} --tp-size 8",
    "h200": f"{K3} --tp-size 16 --ep-size 16 {TWO_NODES} --moe-runner-backend marlin --mem-fraction-static 0.85",
    "mi355x": f"SGLANG_AITER_K3_OPT=1 sglang serve {K3} --tp-size 8 --attention-backend aiter "
    "--kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.85",
    "gb200": f"{K3} --tp-size 16 --ep-size 16 --nnodes 4 --dist-init-addr 10.0.0.1:20000",
}
FLAGS = (
    "--attn-dp-size 2",
    "--attn-dp-size 4 --enable-dp-lm-head",
    "--dcp-size 8 --dcp-comm-backend ag_rs",
    "--pp-size 2",
    "--disaggregation-mode prefill --host 0.0.0.0",
    "--disaggregation-mode decode --host 0.0.0.0",
    "--disaggregation-decode-enable-radix-cache",
    "--speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
    "--speculative-draft-attention-backend triton",
    "--enable-linear-replayssm-spec",
    "--mamba-ssm-dtype bfloat16",
    "--mamba-radix-cache-strategy extra_buffer_lazy",
    "--mamba-full-memory-ratio 3",
    "--max-mamba-cache-size 100",
    "--disable-radix-cache",
    "--enable-hierarchical-cache",
    "--mem-fraction-static 0.95",
    "--mem-fraction-static 0.8",
    "--context-length 1000000",
    "--max-total-tokens 100000000",
    "--cuda-graph-max-bs-decode 512",
    "--moe-a2a-backend megamoe --moe-runner-backend deep_gemm",
    "--moe-a2a-backend deepep --deepep-mode normal",
    "--enable-eplb",
    "--enable-symm-mem",
    "--chunked-prefill-size 16384",
    "--decode-attention-backend cutedsl_mla",
    "--kv-cache-dtype fp8_e4m3",
)


def drawn(draw: random.Random) -> Subject:
    """Up to five of the flags on a platform, perhaps with a limit, a length and a number of requests."""
    at = draw.choice(list(BASES))
    words = [BASES[at], *draw.sample(FLAGS, draw.randint(0, 5))]
    if draw.random() < 0.5:
        words.append(f"--max-running-requests {draw.choice((8, 32, 64, 256, 1000))}")
    length = draw.choice(((8192, 1024), (60_000, 2_000), (None, None)))
    load = Workload(*length, draw.choice((None, 16, 64, 400)))
    return subject_of(Server.parse(" ".join(words)), platform(at), workload=load)


def after(s: Subject, finding: Finding) -> Subject:
    server = apply_edits(s.server, finding.edits)
    return subject_of(server, s.platform, workload=s.workload, model=s.resolved.model, draft=s.resolved.draft)


@pytest.mark.parametrize("seed", range(8))
def test_edits_keep_a_server_up_and_its_requests(seed: int) -> None:
    draw, tried = random.Random(seed), 0
    for _ in range(25):
        s = drawn(draw)
        now, asked = running(s.ledger, s.workload)[0], asked_requests(s)
        for finding in findings_of(s):
            if not finding.edits or finding.severity == "error":
                continue
            tried += 1
            then = after(s, finding)
            assert (finding.id, finding.message) not in {(f.id, f.message) for f in findings_of(then)}, finding
            if s.ledger.boots:
                assert then.ledger.boots, (s.server, finding)
                runs = running(then.ledger, s.workload)[0]
                assert runs >= min(now, asked or now) or f"then {runs} requests" in finding.fix, (s.server, finding)
    assert tried > 10
