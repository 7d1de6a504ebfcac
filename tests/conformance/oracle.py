"""The real engine as a judge: batches of cases in, verdicts out, each verdict kept by its content."""

from __future__ import annotations

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
        verdicts = {key: self._read(key) for key in dict.fromkeys(keys)}
        missing = {key: case for key, case in zip(keys, cases, strict=True) if verdicts[key] is None}
        with ThreadPoolExecutor(WORKERS) as pool:
            for judged in pool.map(self._run, _batches(missing)):
                verdicts |= judged
        return [verdicts[key] or {} for key in keys]

    def _run(self, batch: Mapping[str, Case]) -> dict[str, Verdict]:
        cases = [_for_scripts(case) for case in batch.values()]
        platform = cases[0]["platform"]
        command = [str(self.python), str(DRIVER), str(self.scripts), platform]
        with tempfile.TemporaryDirectory() as models:  # where the scripts put their model folders
            env = {**os.environ, **_import_time(cases[0]), "ORACLE_HOME": models}
            done = subprocess.run(command, input=json.dumps(cases), text=True, capture_output=True, env=env)
        if done.returncode:
            raise RuntimeError(f"the oracle failed on {platform}:\n{done.stderr[-4000:]}")
        found = dict(zip(batch, json.loads(done.stdout.splitlines()[-1]), strict=True))
        for key, verdict in found.items():
            if verdict.get("stage") != "harness":
                self._write(key, verdict)
        return found

    def _key(self, case: Case) -> str:
        text = json.dumps(_for_scripts(case), sort_keys=True)
        return hashlib.sha256(f"{_scripts_digest(self.scripts)} {text}".encode()).hexdigest()[:40]

    def _read(self, key: str) -> Verdict | None:
        path = self.kept / key[:2] / f"{key}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _write(self, key: str, verdict: Verdict) -> None:
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
