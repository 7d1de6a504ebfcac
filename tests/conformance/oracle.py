"""The real engine as a judge: batches of cases in, verdicts out, each verdict kept by its content."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("driver.py")
ORACLE_NAMES = {"a3": "npu"}  # platforms that the reference scripts call differently
WORKERS = 2
BATCH = 150

READ_WHEN_USED = frozenset(
    {
        "SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION",
        "SGLANG_MAMBA_CONV_DTYPE",
        "SGLANG_MAMBA_SSM_DTYPE",
        "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK",
        "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK",
        "SGLANG_PP_LAYER_PARTITION",
        "SGLANG_RAGGED_VERIFY_MODE",
        "SGLANG_VLM_CACHE_SIZE_MB",
    }
)
"""Variables that no module of the engine reads while it is imported: cases that set them share a process."""

Case = dict[str, Any]
Verdict = dict[str, Any]


@dataclass(frozen=True)
class Oracle:
    """An environment with the real SGLang (`home`), the reference facts, and where verdicts are kept."""

    home: Path
    facts: Path
    kept: Path

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.home / "bin" / "python"

    @property
    def scripts(self) -> Path:
        """The folder with the reference scripts."""
        return self.facts / "memory"

    def judge(self, cases: Sequence[Case]) -> list[Verdict]:
        """Verdicts of the real engine, in order; only cases never judged before are run."""
        keys = [self._key(case) for case in cases]
        wanted = dict(zip(keys, cases, strict=True))
        if any(self._read(key) is None for key in wanted):
            self._run_missing(wanted)
        return [self._read(key) or {"ok": False, "stage": "harness"} for key in keys]

    def _run_missing(self, wanted: Mapping[str, Case]) -> None:
        self.kept.mkdir(parents=True, exist_ok=True)
        with (self.kept / "lock").open("w") as lock, ThreadPoolExecutor(WORKERS) as pool:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be judging the same cases
            missing = {key: case for key, case in wanted.items() if self._read(key) is None}
            for _ in pool.map(self._run, _batches(missing)):
                pass

    def _run(self, batch: Mapping[str, Case]) -> None:
        cases = [_for_scripts(case) for case in batch.values()]
        command = [str(self.python), str(DRIVER), str(self.scripts), cases[0]["platform"]]
        with tempfile.TemporaryDirectory() as models, tempfile.TemporaryFile("w+") as errors:
            # The scripts put their model folders under ORACLE_HOME.
            env = {**os.environ, **_import_time(cases[0]), "ORACLE_HOME": models}
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env) as driver:
                assert driver.stdin is not None
                assert driver.stdout is not None
                driver.stdin.write(json.dumps(cases))
                driver.stdin.close()
                verdicts = (json.loads(line) for line in driver.stdout if line.startswith("{"))
                for key, verdict in zip(batch, verdicts, strict=False):
                    self._write(key, verdict)
            if driver.returncode:
                errors.seek(0)
                raise RuntimeError(f"the oracle failed: {' '.join(command)}\n{errors.read()[-4000:]}")

    def _key(self, case: Case) -> str:
        text = json.dumps(_for_scripts(case), sort_keys=True)
        return hashlib.sha256(f"{_scripts_digest(self.scripts)} {text}".encode()).hexdigest()[:40]

    def _read(self, key: str) -> Verdict | None:
        path = self.kept / key[:2] / f"{key}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _write(self, key: str, verdict: Verdict) -> None:
        if verdict.get("stage") == "harness":
            return
        path = self.kept / key[:2] / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(verdict), encoding="utf-8")
        partial.replace(path)


def _for_scripts(case: Case) -> Case:
    platform = case["platform"]
    # A case's name is not part of what is judged.
    return {k: v for k, v in case.items() if k not in ("id", "note")} | {
        "platform": ORACLE_NAMES.get(platform, platform)
    }


def _import_time(case: Case) -> dict[str, str]:
    return {k: str(v) for k, v in (case.get("env") or {}).items() if k not in READ_WHEN_USED}


def _batches(missing: Mapping[str, Case]) -> Iterable[dict[str, Case]]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for key, case in missing.items():
        groups.setdefault((case["platform"], *_import_time(case).items()), []).append(key)
    for keys in sorted(groups.values(), key=len, reverse=True):
        for start in range(0, len(keys), BATCH):
            yield {key: missing[key] for key in keys[start : start + BATCH]}


@cache
def _scripts_digest(scripts: Path) -> str:
    digest = hashlib.sha256()
    for name in ("sgfake.py", "sgcommon.py", "args_oracle.py", "oracle.py"):
        digest.update((scripts / name).read_bytes())
    return digest.hexdigest()


def find_oracle() -> Oracle | None:
    """The oracle that PERILUNE_ORACLE and PERILUNE_FACTS name; None where either is absent."""
    home, facts = os.environ.get("PERILUNE_ORACLE"), os.environ.get("PERILUNE_FACTS")
    if not home or not facts:
        return None
    kept = os.environ.get("PERILUNE_VERDICTS") or Path(home) / "verdicts"
    oracle = Oracle(Path(home), Path(facts), Path(kept))
    return oracle if oracle.python.exists() and oracle.scripts.is_dir() else None
