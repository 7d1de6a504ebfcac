"""`--config FILE`: a YAML file of options that the engine puts in front of the command line's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from perilune.facts.flags import catalog
from perilune.files import read_capped
from perilune.plan.resolve.state import Rejected

MAX_BYTES = 262_144
_ACTION_NAMES = {
    "boolean_optional": "BooleanOptionalAction",
    "deprecated_true": "DeprecatedStoreTrueAction",
    "lora_paths": "LoRAPathAction",
}


def merge(argv: Sequence[str]) -> list[str]:
    """The argument list with the options of its `--config` file put first.

    Only the two-word form counts: the engine ignores `--config=FILE`. Raises Rejected in the engine's
    words, or UnusableInput for a file that is too big or is not plain YAML.
    """
    words = list(argv)
    places = [index for index, word in enumerate(words) if word == "--config"]
    if not places:
        return words
    if len(places) > 1:
        raise Rejected("ValueError: Multiple config files specified! Only one allowed.", "parse")
    at = places[0]
    if at == len(words) - 1:
        raise Rejected("ValueError: No config file specified after --config flag!", "parse")
    if not words[at + 1]:
        return words
    return [*as_words(_read(words[at + 1])), *words[:at], *words[at + 2 :]]


def _read(name: str) -> dict[Any, Any]:
    from perilune.plan.yaml_input import read_yaml  # only here: most command lines have no such file

    path = Path(name)
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise Rejected(f"ValueError: Config file must be YAML format, got: {path.suffix}", "parse")
    if not path.is_file():
        raise Rejected(f"ValueError: Config file not found: {name}", "parse")
    raw = read_capped(path, MAX_BYTES)
    content = read_yaml(raw, name)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Rejected("ValueError: Config file must contain a dictionary at root level", "parse")
    return content


def as_words(content: dict[Any, Any]) -> Iterator[str]:
    """The words that the options of a file stand for; raises Rejected for a key that the engine refuses there."""
    switches, unsupported = _keys()
    for key, value in content.items():
        if not isinstance(key, str):
            raise Rejected(f"AttributeError: '{type(key).__name__}' object has no attribute 'replace'", "parse")
        name = key.replace("-", "_")
        if name in unsupported:
            raise Rejected(f"ValueError: Unsupported config option '{name}' with action '{unsupported[name]}'", "parse")
        if isinstance(value, bool) and name in switches:
            yield from [f"--{key}"] if value else []
        elif isinstance(value, bool):
            yield from (f"--{key}", str(value).lower())
        elif isinstance(value, list):
            yield from [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            yield from (f"--{key}", json.dumps(value, default=str))
        else:
            yield from (f"--{key}", str(value))


@cache
def _keys() -> tuple[frozenset[str], dict[str, str]]:
    """YAML keys of plain switches, and keys the engine refuses with the action it names."""
    switches: set[str] = set()
    supported: set[str] = set()
    refused: dict[str, str] = {}
    for option in catalog().options:
        keys = {option.dest} | {s[2:].replace("-", "_") for s in option.options if s.startswith("--")}
        if option.kind == "store_true":
            switches |= keys
        if option.kind in _ACTION_NAMES:
            refused |= dict.fromkeys(keys, _ACTION_NAMES[option.kind])
        else:
            supported |= keys
    return frozenset(switches), {key: name for key, name in refused.items() if key not in supported}
