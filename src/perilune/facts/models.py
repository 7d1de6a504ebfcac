"""Models and drafts that are known: configs, published sizes, sources. Data in `models/catalog.yaml`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import msgspec

from perilune.errors import UnusableInput
from perilune.facts.load import load


class Quantization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a checkpoint is stored, where its own config text is not at hand."""

    method: str  # the engine's name: modelopt_mixed, compressed-tensors, modelslim, ...
    format: str | None = None
    kv_cache: str | None = None  # fp8 when the checkpoint declares an FP8 KV scheme
    layout: dict[str, str] = {}  # tensor class (experts, attention, linear, ...) -> storage format


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One catalog entry. `config` names a file of `models/configs`."""

    id: str
    label: str
    role: str  # target | draft
    config: str
    quantization: Quantization | None = None  # given where the checkpoint is stored otherwise than `config` says
    published_parameters: str | None = None
    published_size: str | None = None
    engine: str = "SGLang 0.5.23"  # the first engine version known to serve it, or why none does
    notes: tuple[str, ...] = ()
    source: str
    confidence: str  # high | medium | low

    @property
    def raw(self) -> Mapping[str, Any]:
        """The Hugging Face config, as a mapping that must not be changed.

        Without its quantization section when the entry brings its own.
        """
        return _config(self.config) if self.quantization is None else _unquantized(self.config)


@dataclass(frozen=True, slots=True)
class Found:
    """A model that was looked up, and what had to be assumed to find it."""

    model: Model
    assumption: str | None = None


class _Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Model, ...]


@cache
def models() -> dict[str, Model]:
    """Every catalog entry by hub id, in catalog order."""
    return {m.id: m for m in load("models/catalog.yaml", _Catalog).models}


@cache
def _config(name: str) -> Mapping[str, Any]:
    return load(f"models/configs/{name}", dict[str, Any])


@cache
def _unquantized(name: str) -> Mapping[str, Any]:
    def strip(section: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in section.items() if key != "quantization_config"}
        return {key: strip(value) if isinstance(value, dict) else value for key, value in kept.items()}

    return strip(_config(name))


def find(path: str) -> Found:
    """The model that `path`, a hub id or a local directory, means; raises UnusableInput when it is unknown."""
    known = models()
    if path in known:
        return Found(known[path])
    parts = _parts(path)
    candidates = _same_name(parts)
    if not candidates:
        nearest = difflib.get_close_matches(path, known, n=1, cutoff=0.4)
        closest = f" The closest known one is {nearest[0]}." if nearest else ""
        raise UnusableInput(
            f"Nothing is known of the model {path[:200]!r}.{closest}",
            where="--model-path",
            fix="Give its config.json with --model-config FILE.",
        )
    chosen, *others = candidates
    assumption = f"{path} is taken to be {chosen.id}"
    if others:
        assumption += f" (not {', '.join(m.id for m in others)})"
    return Found(chosen, assumption)


def _parts(path: str) -> tuple[str, ...]:
    """The names in a path; a hub cache folder such as `models--moonshotai--Kimi-K3` counts as owner and name."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    cached = [part.split("--")[1:] for part in parts if part.startswith("models--") and part.count("--") == 2]
    return tuple(cached[-1]) if cached else parts


def _same_name(parts: tuple[str, ...]) -> list[Model]:
    """Entries whose name is the last part of a path; those whose owner is the part before it come first."""
    if not parts:
        return []
    name = parts[-1].lower()
    owner = parts[-2].lower() if len(parts) > 1 else ""
    same = [m for m in models().values() if m.id.split("/")[1].lower() == name]
    exact = [m for m in same if m.id.split("/")[1] == parts[-1]] or same
    owned = [m for m in same if m.id.split("/")[0].lower() == owner]
    return owned or exact
