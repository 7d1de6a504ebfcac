"""The table of 58 judged command lines, and helpers to plan one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from perilune.facts.hardware import platform
from perilune.facts.models import Quantization
from perilune.plan.memory import Ledger, Measured, ledger
from perilune.plan.model.config import ModelConfig, known_config
from perilune.plan.resolve import resolve
from perilune.plan.resolve.state import Resolved
from perilune.plan.server import Server

K3 = "sglang serve --trust-remote-code --model-path moonshotai/Kimi-K3"
DSPARK = (
    " --speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"
    " --speculative-dspark-block-size 7"
)
REPLAY = " --enable-linear-replayssm-spec"
BALANCED = "--tp-size 8 --dcp-size 8 --mem-fraction-static 0.85"
NODES2 = " --nnodes 2 --dist-init-addr 10.0.0.1:20000"


@dataclass(frozen=True)
class Case:
    """One line of the table: see the head of `data/memory_cases.yaml`."""

    values: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def measured(self) -> Measured:
        return Measured(self.before, self.free)

    @property
    def plan(self) -> Ledger:
        return ledger(
            resolved(self.argv, self.platform, tuple((self.env or {}).items()), self.checkpoint_kv),
            self.measured,
        )


@cache
def cases() -> tuple[Case, ...]:
    text = (Path(__file__).parent / "data" / "memory_cases.yaml").read_text()
    return tuple(Case(entry) for entry in yaml.load(text, yaml.CSafeLoader))


def case(prefix: str) -> Case:
    return next(found for found in cases() if found.id.startswith(prefix))


@cache
def resolved(
    argv: str,
    on: str = "b300",
    env: tuple[tuple[str, str], ...] = (),
    checkpoint_kv: str | None = None,
    quant: str = "mxfp4",
) -> Resolved:
    model = checkpoint(quant, checkpoint_kv) if checkpoint_kv or quant != "mxfp4" else None
    return resolve(server(argv, dict(env)), platform(on), model=model)


def server(argv: str, env: Mapping[str, str] | None = None) -> Server:
    return Server.parse(f"{K3} {argv}").with_env(env or {})


def checkpoint(quant: str, kv: str | None = None) -> ModelConfig:
    """Kimi-K3 as NVIDIA's NVFP4 checkpoint, or as one that declares an FP8 KV scheme."""
    if quant == "nvfp4":
        return known_config("nvidia/Kimi-K3-NVFP4")
    known = known_config("moonshotai/Kimi-K3")
    assert known.known is not None
    stored = Quantization(method="modelopt_fp4", kv_cache=kv)
    return replace(known, known=msgspec.structs.replace(known.known, quantization=stored))


def planned(argv: str, on: str = "b300", *, measured: Measured | None = None, **how: Any) -> Ledger:
    """The ledger of a Kimi-K3 command line."""
    found = resolved(argv, on, **how)
    assert found.accepted, found.error
    return ledger(found, measured)
