"""A rehearsal read back from its JSON, to be compared with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perilune.errors import UnusableInput
from perilune.files import read_capped
from perilune.rehearse.report.document import VERSION

MOST_BYTES = 64 * 1024 * 1024


class _Version(msgspec.Struct, frozen=True):
    rehearsal: int


class Latency(msgspec.Struct, frozen=True):
    """The percentiles of one quantity, seconds; None where nothing was served."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


class RequestCounts(msgspec.Struct, frozen=True):
    """How the requests ended."""

    completed: int
    rejected: int
    retracted: int
    unfinished: int


class Cache(msgspec.Struct, frozen=True):
    """Prompt tokens, and those found in the cache."""

    hit_tokens: int
    prompt_tokens: int


class SavedPool(msgspec.Struct, frozen=True):
    """One pool as it was rehearsed."""

    role: str
    platform: str
    recipe: str
    quant: str
    spec: str
    shape: str
    gpus: int
    replicas: int
    cap: int
    command: tuple[str, ...]
    env: dict[str, str]


class SavedPlan(msgspec.Struct, frozen=True):
    """The plan that was rehearsed."""

    id: str
    model: str
    pools: tuple[SavedPool, ...]


class Saved(msgspec.Struct, frozen=True):
    """What a comparison needs of a document."""

    rehearsal: int
    engine: str
    plan: SavedPlan
    traffic: dict[str, Any]
    router: str | None
    seed: int
    acceptance: dict[str, Any] | None
    settings: dict[str, str]
    interrupted: bool
    basis: str
    error_band: tuple[float, float]
    gpus: int
    duration_s: float
    ttft_s: Latency
    tpot_s: Latency
    itl_s: Latency
    e2e_s: Latency
    tokens_per_second_per_gpu: float
    output_tokens_per_second: float
    requests: RequestCounts
    admitted_max: int
    waits_s: dict[str, float]
    cache: Cache
    slo: dict[str, Any] | None = None


def read_saved(path: Path) -> Saved:
    """A document of `rehearse --json`; raises UnusableInput naming the file and the field."""
    raw = read_capped(path, MOST_BYTES)
    try:
        version = msgspec.json.decode(raw, type=_Version).rehearsal
        if version != VERSION:
            raise UnusableInput(f"It is a rehearsal of version {version}; this reads {VERSION}.", where=str(path))
        return msgspec.json.decode(raw, type=Saved)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableInput(
            f"It is not a saved rehearsal: {error}.", where=str(path), fix="Save one with perilune rehearse --json."
        ) from None
