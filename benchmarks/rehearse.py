"""How fast rehearsals are: many decode steps at once against one at a time, in requests per second and memory.

    python benchmarks/rehearse.py [--requests 1000000]

Every run is a process of its own, so that its memory is its own too, and is timed by its processor time: a rehearsal is
one thread. Exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from perilune.plan.compose import Choice, compose
from perilune.plan.planned import plan
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.perform import Settings, perform

TRACE = Path(__file__).with_name("data") / "mooncake_conversation_trace.jsonl.gz"
TRACE_S = 2.0
MILLION = 1_000_000
MILLION_S = 60.0
MILLION_MIB = 1536
STEPPED = 4_000  # requests of the closed loop that are also run one step at a time
SERVERS = {"mooncake": 2, "closed": 8}


def run(case: str, requests: int, *, one_step: bool) -> dict[str, float]:
    """One rehearsal as the command line makes it, on servers of eight B300 GPUs as the balanced recipe has them.

    Processor time from the planned deployment to the report, peak memory, and what came of it to compare runs by.
    """
    planned = plan(compose(Choice(hardware="b300", strategy="balanced", spec="dspark")))
    count = SERVERS[case]
    if case == "mooncake":
        load = OfferedLoad(trace=TRACE)
    else:
        full = (planned.pools[0].ledger.admitted or 0) * count
        load = OfferedLoad(concurrency=full, requests=requests, isl=8192, osl=1024)
    start = time.process_time()
    found = perform(planned, load, Settings(replicas={"unified": count}), one_step=one_step).outcome
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": took, "mib": peak, **_told(found)}


def _told(found: Outcome) -> dict[str, float]:
    return {
        "requests": found.requests.completed,
        "duration_s": found.duration_s,
        "ttft_s": found.ttft_s.p50,
        "itl_s": found.itl_s.p99,
    }


def apart(case: str, requests: int, *, one_step: bool = False) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--requests", str(requests)]
    done = subprocess.run([*command, *(["--one-step"] if one_step else [])], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(title: str, case: str, requests: int) -> dict[str, float]:
    """Run both ways, and print both and their ratio."""
    fast, slow = apart(case, requests), apart(case, requests, one_step=True)
    for name in ("requests", "duration_s", "ttft_s", "itl_s"):
        if fast[name] != slow[name]:
            raise SystemExit(f"{title}: {name} is {fast[name]} at once and {slow[name]} one step at a time.")
    print(f"{title}")
    for label, took in (("many steps at once", fast), ("one at a time", slow)):
        rate = took["requests"] / took["seconds"]
        print(f"  {label:20} {took['seconds']:8.2f} s {rate:10,.0f} requests/s {took['mib']:6.0f} MiB")
    print(f"  times faster         {slow['seconds'] / fast['seconds']:8.1f}")
    return fast


def main() -> int:
    """Measure and print; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=MILLION, help="of the long closed loop")
    parser.add_argument("--case", choices=("mooncake", "closed"), help=argparse.SUPPRESS)
    parser.add_argument("--one-step", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(run(given.case, given.requests, one_step=given.one_step)))
        return 0
    trace = compare("Mooncake conversations, two servers of 8 GPUs", "mooncake", 0)
    compare(f"{STEPPED:,} requests of 8k/1k in a closed loop, eight servers", "closed", STEPPED)
    long = apart("closed", given.requests)
    rate = long["requests"] / long["seconds"]
    print(f"{given.requests:,} requests of 8k/1k in a closed loop, eight servers")
    print(f"  many steps at once   {long['seconds']:8.2f} s {rate:10,.0f} requests/s {long['mib']:6.0f} MiB")
    share = given.requests / MILLION
    kept = trace["seconds"] < TRACE_S and long["seconds"] < MILLION_S * share and long["mib"] < MILLION_MIB
    print(f"promised: {TRACE_S} s for the trace, {MILLION_S * share:g} s and {MILLION_MIB} MiB for the closed loop")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
