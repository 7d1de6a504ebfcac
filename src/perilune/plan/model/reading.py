"""Reading a `config.json` that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perilune.errors import UnusableInput
from perilune.files import read_capped
from perilune.plan.model.config import ModelConfig

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 32
QUANTIZATION_ORIGIN = "perilune_read_from"
"""Key that marks a quantization section which was not in the config itself but in a file beside it."""


def load_config_file(path: str | Path) -> ModelConfig:
    """Read a `config.json`, or the one in a directory.

    A `hf_quant_config.json` beside it counts where the config itself says nothing of quantization, as in the engine.
    Raises UnusableInput for a file that is absent, larger than 16 MiB, nested deeper than 32 levels or not a config.
    """
    file, where = Path(path), str(path)
    if file.is_dir():
        file = file / "config.json"
    raw = _read(file, where)
    beside = file.with_name("hf_quant_config.json")
    if isinstance(raw, dict) and not _says_quantization(raw) and beside.is_file():
        raw = {**raw, "quantization_config": _modelopt(_read(beside, str(beside)))}
    return parse_config(raw, where)


def parse_config(raw: object, where: str) -> ModelConfig:
    """Check a decoded config and wrap it; raises UnusableInput naming the first field that cannot be used."""
    if not isinstance(raw, Mapping):
        raise UnusableInput("It must hold one JSON object.", where=where)
    if _depth(raw) > MAX_DEPTH:
        raise UnusableInput(f"It is nested deeper than {MAX_DEPTH} levels.", where=where)
    names = raw.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str) or not names[0]:
        raise UnusableInput("architectures must be a list that names the model class.", where=where)
    for section in (raw, raw.get("text_config")):
        kind = section.get("model_type") if isinstance(section, Mapping) else None
        if kind is not None and not isinstance(kind, str):
            raise UnusableInput("model_type must be text.", where=where)
    config = ModelConfig(where, raw)
    _ = (config.layers, config.hidden_size, config.vocab_size, config.num_heads, config.num_kv_heads)
    _ = (config.is_mla or config.head_dim, config.context_length, config.num_experts)
    return config


def _read(file: Path, where: str) -> Any:
    data = read_capped(file, MAX_FILE_BYTES)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise UnusableInput(f"It is nested deeper than {MAX_DEPTH} levels.", where=where) from None
    except ValueError as error:
        raise UnusableInput(f"It is not JSON: {str(error)[:120]}.", where=where) from None


def _says_quantization(raw: Mapping[str, Any]) -> bool:
    text = raw.get("text_config")
    sections = (raw, text if isinstance(text, Mapping) else {})
    return any(key in section for section in sections for key in ("quantization_config", "compression_config"))


def _modelopt(raw: object) -> dict[str, Any]:
    section = raw.get("quantization") if isinstance(raw, Mapping) else None
    origin = {"quant_method": "modelopt", QUANTIZATION_ORIGIN: "hf_quant_config.json"}
    return {**origin, **section} if isinstance(section, Mapping) else origin


def _depth(value: object) -> int:
    """How deep a decoded JSON value is nested, counted without recursion and stopped past the cap."""
    level: list[object] = [value]
    depth = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        nested: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                nested.extend(item.values())
            elif isinstance(item, list):
                nested.extend(item)
        level = [v for v in nested if isinstance(v, Mapping | list)]
    return depth
