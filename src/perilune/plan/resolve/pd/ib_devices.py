"""The three forms of `--disaggregation-ib-device`: a list, a per-GPU JSON mapping, or a file with one."""

from __future__ import annotations

import json
from typing import Any

from perilune.plan.resolve.state import Resolution

MAX_DIGITS = 9


def normalised(r: Resolution, text: str) -> str:
    """The devices without blanks and duplicates; a file's name is kept, as its content is on the node.

    The engine also looks every device up on its own machine, which a plan made elsewhere cannot do.
    """
    text = text.strip()
    if not text:
        raise r.reject("No valid IB devices specified")
    if text.endswith(".json"):
        r.warn(f"The RDMA devices are read from {text} on each node, and are not checked here.")
        return text
    if not text.startswith("{"):
        return _device_list(r, text, "all GPUs")
    mapping = _per_gpu(r, text)
    return json.dumps(
        {str(gpu): _device_list(r, devices, f"GPU {gpu}") for gpu, devices in mapping.items()},
        separators=(",", ":"),
    )


def _per_gpu(r: Resolution, text: str) -> dict[int, str]:
    try:
        raw: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        raise r.reject(f"Invalid JSON mapping: {text}") from None
    if not all(_is_gpu(gpu) and isinstance(devices, str) for gpu, devices in raw.items()):
        raise r.reject(
            "Invalid format: keys must be integers (or string representations of integers) and values must be strings"
        )
    if not raw:
        raise r.reject("No valid GPU mappings found in JSON")
    return {int(gpu): devices for gpu, devices in raw.items()}


def _is_gpu(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS


def _device_list(r: Resolution, text: str, owner: str) -> str:
    named = [name.strip() for name in text.split(",") if name.strip()]
    if not named:
        raise r.reject(f"No valid IB devices specified for {owner}")
    unique = list(dict.fromkeys(named))
    if len(unique) != len(named):
        r.warn(f"RDMA devices named twice for {owner} are used once.")
    return ",".join(unique)
