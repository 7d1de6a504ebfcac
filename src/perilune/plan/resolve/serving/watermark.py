"""Watermark settings given as one JSON object. Source: SGLang 0.5.23 `sampling/watermarking/config.py`."""

from __future__ import annotations

import json
from typing import Any, Final

from perilune.errors import UnusableInput
from perilune.plan.resolve.state import Rejected, Resolution

MAX_BYTES: Final = 4096
KEYS: Final = ("key", "key_b")
NUMBERS: Final = ("mixing_probability", "max_probability")
SWITCHES: Final = ("default_enabled", "enforce_all")
FIELDS: Final = (
    "key",
    "key_b",
    "context_window",
    "mixing_probability",
    "max_probability",
    "default_enabled",
    "enforce_all",
)
HEX: Final = frozenset("0123456789abcdefABCDEF")


def watermark(r: Resolution) -> None:
    """Spread `--watermark-config` over the `watermark_*` fields."""
    source = r["watermark_config"]
    if source is None:
        return
    if not source.lstrip().startswith("{"):
        raise UnusableInput(
            "A watermark configuration in a file is not modelled.",
            where="--watermark-config",
            fix="Give the JSON object itself.",
        )
    for name, value in _read(r, source).items():
        r.set(f"watermark_{name}", value, "From --watermark-config.")


def key_problem(value: Any) -> str | None:
    """What is wrong with a watermark key, or None for a sound one."""
    if not isinstance(value, str):
        return "watermark key must be a hex string"
    digits = value[2:] if value.lower().startswith("0x") else value
    if not 1 <= len(digits) <= 16:
        return "watermark key must contain 1 to 16 hex digits"
    return None if HEX.issuperset(digits) else "watermark key must contain only hex digits"


def _read(r: Resolution, source: str) -> dict[str, Any]:
    """The fields that are set, in the engine's order."""
    if len(source.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _bad(r, f"config exceeds {MAX_BYTES} bytes")
    try:
        raw = json.loads(source)
    except (ValueError, RecursionError):
        raise _bad(r, "failed to read watermark config JSON", whole=True) from None
    if not isinstance(raw, dict):
        raise _bad(r, "config must be a JSON object")
    if set(raw) - set(FIELDS):
        raise _bad(r, "config contains unknown fields")
    for name in KEYS:
        problem = key_problem(raw[name]) if raw.get(name) is not None else None
        if problem is not None:
            raise _bad(r, problem, whole=True)
    window = raw.get("context_window")
    if window is not None and not (type(window) is int and 1 <= window <= 64):
        raise _bad(r, "config context_window must be an integer from 1 to 64")
    for name in NUMBERS:
        if raw.get(name) is not None and type(raw[name]) not in (int, float):
            raise _bad(r, f"config {name} must be a number")
    for name in SWITCHES:
        if raw.get(name) is not None and not isinstance(raw[name], bool):
            raise _bad(r, f"config {name} must be a boolean")
    return {name: raw[name] for name in FIELDS if raw.get(name) is not None}


def _bad(r: Resolution, text: str, *, whole: bool = False) -> Rejected:
    return r.reject(text if whole else f"watermark {text}", error="WatermarkConfigError")
