"""Reading the packaged data files into typed values."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def data_bytes(name: str) -> bytes:
    """Return the raw bytes of a packaged data file, such as `platforms.yaml`."""
    return files("perilune.facts").joinpath("data").joinpath(*name.split("/")).read_bytes()


def load(name: str, type_: type[T]) -> T:
    """Decode a packaged YAML or JSON file into `type_`; raises msgspec.ValidationError on a bad entry."""
    raw = data_bytes(name)
    if name.endswith(".json"):
        return msgspec.json.decode(raw, type=type_)
    return msgspec.convert(_yaml(raw), type=type_)


def _yaml(raw: bytes) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(raw, Loader=loader)  # noqa: S506 - both loaders are the safe ones
