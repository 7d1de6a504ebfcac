"""How fast ledgers are: in process, with resolution, and as a whole process against the real engine's code.

    python benchmarks/ledger.py [--seconds 2]

The last figure needs the conformance environment: PERILUNE_ORACLE (its directory) and PERILUNE_FACTS (the
directory with `memory/oracle.py`). Both sides answer the same line in turns of one run, and processor time is
compared beside wall clock, so the ratio is fair on a busy machine. Exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perilune.facts.hardware import platform
from perilune.plan.memory import Measured, ledger
from perilune.plan.resolve import resolve
from perilune.plan.server import Server

LEDGERS_PER_SECOND = 5_000
TIMES_FASTER = 20
BASE = "--trust-remote-code --model-path moonshotai/Kimi-K3 --tp-size 8 --mem-fraction-static 0.85"
DSPARK = (
    " --speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
    " --speculative-dspark-block-size 7 --enable-linear-replayssm-spec"
)
LINES = (
    BASE,
    BASE + " --dcp-size 8 --mamba-full-memory-ratio 7.21",
    BASE + " --dcp-size 8 --mamba-full-memory-ratio 5.13 --max-running-requests 256" + DSPARK,
    BASE + " --disaggregation-mode decode --disaggregation-transfer-backend nixl --max-running-requests 32",
)
BEFORE_GIB, AFTER_GIB = 265.5, 71.6


def rate(call: Callable[[], object], seconds: float) -> float:
    """Calls per second of processor time, the best of five stretches."""
    best = 0.0
    for _ in range(5):
        calls, start = 0, time.process_time()
        while time.process_time() - start < seconds / 5:
            for _ in range(10):
                call()
            calls += 10
        best = max(best, calls / (time.process_time() - start))
    return best


def in_process(seconds: float) -> float:
    """Ledgers a second from resolved servers, each with figures of its own so that nothing is asked twice."""
    servers = [resolve(Server.parse(f"sglang serve {line}"), platform("b300")) for line in LINES]
    turns = itertools.cycle(servers)
    free = itertools.cycle(AFTER_GIB + step / 100 for step in range(997))
    return rate(lambda: ledger(next(turns), Measured(BEFORE_GIB, next(free))), seconds)


def with_resolution(seconds: float) -> float:
    """Command lines a second, from text to ledger."""
    lines = itertools.cycle(LINES)
    b300 = platform("b300")
    return rate(lambda: ledger(resolve(Server.parse(f"sglang serve {next(lines)}"), b300)), seconds)


@dataclass(frozen=True)
class Took:
    """Seconds of one process."""

    wall_s: float
    cpu_s: float


def timed(command: list[str], env: dict[str, str]) -> tuple[Took, dict[str, object]]:
    """Run a command that prints one JSON object; what it took and what it said."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu), json.loads(done.stdout)


def whole_process(oracle: Path, facts: Path) -> tuple[Took, Took]:
    """What `perilune memory` and the real sizing code took on the same line, the best of their turns."""
    line = LINES[2].split()
    ours = [
        str(Path(sys.executable).with_name("perilune")),
        *("memory", "--platform", "b300", "--json"),
        *("--free-before-load-gib", str(BEFORE_GIB), "--free-after-weights-gib", str(AFTER_GIB)),
        *("--", "sglang", "serve", *line),
    ]
    case = {
        "platform": "b300",
        "argv": line,
        "pre_model_load_gib": BEFORE_GIB,
        "free_after_weights_gib": AFTER_GIB,
        "build_pools": True,
    }
    theirs = [str(oracle / "bin" / "python"), str(facts / "memory" / "oracle.py"), "--one", json.dumps(case)]
    env = os.environ | {"ORACLE_HOME": str(oracle)}
    mine: list[Took] = []
    real: list[Took] = []
    answers: list[dict[str, object]] = []
    for command, runs in [(ours, mine), (theirs, real), (ours, mine), (theirs, real), (ours, mine)]:
        took, answer = timed(command, env)
        runs.append(took)
        answers.append(answer)
    for name in ("max_mamba_cache_size", "max_total_num_tokens", "max_running_requests"):
        if len({answer[name] for answer in answers}) != 1:
            raise SystemExit(f"The two sides disagree on {name}.")
    return best(mine), best(real)


def best(runs: list[Took]) -> Took:
    """The least wall clock and the least processor time."""
    return Took(min(run.wall_s for run in runs), min(run.cpu_s for run in runs))


def main() -> int:
    """Measure and print; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="processor time for each in-process figure")
    seconds = parser.parse_args().seconds
    ledgers = in_process(seconds)
    print(f"ledgers from a resolved server   {ledgers:10,.0f} /s   (promised {LEDGERS_PER_SECOND:,})")
    print(f"command line to ledger           {with_resolution(seconds):10,.0f} /s")
    kept = ledgers >= LEDGERS_PER_SECOND
    oracle, facts = os.environ.get("PERILUNE_ORACLE"), os.environ.get("PERILUNE_FACTS")
    if oracle and facts:
        mine, real = whole_process(Path(oracle), Path(facts))
        faster = real.cpu_s / mine.cpu_s
        print("whole process                           wall        CPU")
        print(f"perilune memory                  {mine.wall_s:10.2f} {mine.cpu_s:10.2f} s")
        print(f"the real sizing code             {real.wall_s:10.2f} {real.cpu_s:10.2f} s")
        print(f"times faster                     {real.wall_s / mine.wall_s:10.1f} {faster:10.1f}", end="")
        print(f"     (promised {TIMES_FASTER} of CPU)")
        kept = kept and faster >= TIMES_FASTER
    else:
        print("whole process: set PERILUNE_ORACLE and PERILUNE_FACTS to compare with the real code")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
