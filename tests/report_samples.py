"""Rehearsals made by hand, for what reads them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from perilune.rehearse.acceptance import Acceptance
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.outcome import Counts, Distribution, Outcome, ReplicaOutcome, RequestRecord, Series, Span
from perilune.rehearse.report.rehearsal import PoolFacts, Rehearsal
from perilune.rehearse.tally import Targets

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\x1b[31m\u2028$\\frac{"
BINS = 120

BALANCED = (
    "sglang", "serve", "--trust-remote-code", "--model-path", "moonshotai/Kimi-K3", "--tp-size", "8", "--dcp-size", "8",
    "--mem-fraction-static", "0.85", "--reasoning-parser", "kimi_k3", "--tool-call-parser", "kimi_k3",
    "--mamba-full-memory-ratio", "7.21", "--host", "0.0.0.0", "--port", "30000",  # noqa: S104
)  # fmt: skip
"""B300 Balanced, MXFP4, no speculation, as the Kimi-K3 page has it."""


def distribution(mean: float, count: int = 320) -> Distribution:
    """A skewed sketch around a mean."""
    cdf = tuple((mean * (0.6 + 0.8 * (step / 50) ** 3), step / 50) for step in range(1, 51))
    return Distribution(count, mean, mean * 0.95, mean * 1.18, mean * 1.37, mean * 1.4, cdf)


def series(scale: float) -> Series:
    """A ramp, a plateau with waves, a tail."""
    shape = [min(1.0, bin_ / 10, (BINS - bin_) / 15) for bin_ in range(BINS)]
    return Series(
        bin_s=3.5,
        running=tuple(scale * level for level in shape),
        queued=tuple(scale / 4 * level * (1 + math.sin(bin_ / 4)) for bin_, level in enumerate(shape)),
        kv_used=tuple(0.8 * level for level in shape),
        slots_used=tuple(0.9 * level for level in shape),
        prompt_tokens=tuple(int(20_000 * scale / 64 * level) for level in shape),
        output_tokens=tuple(int(5_000 * scale / 64 * level) for level in shape),
    )


def spans(role: str) -> tuple[Span, ...]:
    """A few steps of a server."""
    made = []
    for number in range(40):
        start = number * 1.5
        if role != "decode":
            made.append(Span(start, start + 0.4, "prefill", 2, 16384))
        if role != "prefill":
            made.append(Span(start + 0.4, start + 1.5, "decode", 60, 1200))
    made.append(Span(80.0, 110.0, "down", 0, 0))
    return tuple(made)


def replica(role: str, number: int) -> ReplicaOutcome:
    """One server of the fleet."""
    return ReplicaOutcome(f"{role}-{number}", role, 8, 64, 160, 0.97, series(32.0), spans(role))


def outcome(replicas: tuple[ReplicaOutcome, ...] = (replica("unified", 0), replica("unified", 1))) -> Outcome:
    """320 requests on two servers."""
    return Outcome(
        traffic="closed loop",
        gpus=sum(one.gpus for one in replicas),
        duration_s=420.0,
        ttft_s=distribution(4.2),
        tpot_s=distribution(0.0402),
        itl_s=distribution(0.0398, 320 * 1023),
        e2e_s=distribution(46.0),
        requests=Counts(320, 0, 2, 0),
        admitted_max=128,
        output_tokens=320 * 1024,
        prompt_tokens=320 * 8192,
        hit_tokens=320 * 1024,
        waits_s={"kv_tokens": 0.0, "prefill": 900.0, "request_limit": 200.5, "state_slots": 1.25},
        basis="fitted",
        error_band=(0.85, 1.2),
        series=series(64.0),
        replicas=replicas,
        records=(RequestRecord(0, 8192, 1024, 0.0, 4.0, 44.0, "finished", 512, "unified-0"),),
        notes=("2 rows with no output were left out.",),
        seed=7,
    )


def pool(role: str = "unified", **changes: object) -> PoolFacts:
    """Two B300 servers of the Balanced recipe."""
    made = PoolFacts(
        role="unified",
        platform="b300",
        recipe="b300/unified/balanced",
        quant="mxfp4",
        spec="none",
        shape="TP8 × DCP8",
        gpus=8,
        replicas=2,
        cap=202,
        binds="state",
        command=("sglang", "serve", "--tp-size", "8", "--dcp-size", "8"),
        env={"SGLANG_X": "1"},
    )
    return replace(made, role=role, **changes)  # type: ignore[arg-type]


def rehearsal(**changes: object) -> Rehearsal:
    """A closed loop of 128 on two B300 servers, with an SLO that is missed."""
    made = Rehearsal(
        model="moonshotai/Kimi-K3",
        pools=(pool(),),
        load=OfferedLoad(concurrency=128, isl=8192, osl=1024, requests=320),
        outcome=replace(outcome(), goodput={"share": 0.72, "requests_per_second": 0.55}),
        router="cache_aware",
        slo=Targets(ttft_s=5.0, tpot_s=0.05),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def published_rehearsal() -> Rehearsal:
    """One server in the very workload that was published."""
    return rehearsal(
        pools=(pool(replicas=1, cap=101, command=BALANCED, env={}),),
        load=OfferedLoad(concurrency=64, isl=8192, osl=1024),
        outcome=outcome((replica("unified", 0),)),
        router=None,
        slo=None,
    )


def hostile_rehearsal() -> Rehearsal:
    """Names and notes that try to leave their place."""
    made = outcome()
    named = tuple(replace(one, name=HOSTILE) for one in made.replicas)
    return rehearsal(
        model=HOSTILE,
        load=OfferedLoad(trace=Path(HOSTILE), requests=3),
        outcome=replace(made, traffic=HOSTILE, notes=(HOSTILE,), replicas=named),
        acceptance=Acceptance(4.5, HOSTILE, assumed=True),
        settings={"profile": HOSTILE},
    )
