"""Check one command, and 1,000 manifests in one call: `python benchmarks/check.py [--check]`.

Times are CPU seconds of whole processes on one core, start of the interpreter included.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

MANIFESTS = 1_000
ONE_SECONDS, ALL_SECONDS = 1 / 3, 30.0
RUNS = 5
COMMAND = "sglang serve --model-path moonshotai/Kimi-K3 --trust-remote-code --tp-size 8 --max-running-requests 16"
WORKER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: k3-{number}}}
spec:
  template:
    spec:
      nodeSelector: {{nvidia.com/gpu.product: NVIDIA-B300}}
      containers:
      - name: sglang
        image: lmsysorg/sglang:v0.5.23
        env:
        - {{name: HF_HUB_OFFLINE, value: "1"}}
        command: [sglang, serve]
        args:
        - --model-path=moonshotai/Kimi-K3
        - --trust-remote-code
        - --tp-size
        - "8"
        - --port
        - "{port}"
        - --max-running-requests
        - "{requests}"
"""


def seconds(arguments: list[str]) -> float:
    """CPU seconds of one `perilune` process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "perilune", *arguments], check=False, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print, and with --check fail when it takes too long."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"PYTHONPYCACHEPREFIX": f"{name}/cache", "PYTHONDONTWRITEBYTECODE": ""}
        one = ["check", "--platform", "b300", "--", *COMMAND.split()]
        seconds(one)  # compiles
        single = min(seconds(one) for _ in range(RUNS))
        script = Path(name, "run.sh")
        script.write_text(COMMAND + "\n", encoding="utf-8")
        read = min(seconds(["check", "--platform", "b300", str(script)]) for _ in range(RUNS))
        files = [Path(name, f"{number:04}.yaml") for number in range(MANIFESTS)]
        for number, path in enumerate(files):
            text = WORKER.format(number=number, port=30_000 + number % 100, requests=8 + number % 10)
            path.write_text(text, encoding="utf-8")
        every = seconds(["check", *map(str, files), "--json"])
    print(f"one command: {single:.3f} s, from a script: {read:.3f} s")
    print(f"{MANIFESTS:,} manifests with 100 different servers: {every:.1f} s, {every / MANIFESTS * 1e3:.1f} ms each")
    return 1 if "--check" in sys.argv and (single > ONE_SECONDS or every > ALL_SECONDS) else 0


if __name__ == "__main__":
    sys.exit(main())
