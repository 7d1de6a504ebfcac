"""Values that Python can read but no server can mean: refused before any arithmetic sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from perilune.errors import UnusableInput
from perilune.facts.flags import Option, option_of

MAX_INT = 2**48
MAX_DEVICES = 65_536
MAX_TEXT = 4_096

_DEVICE_COUNTS = frozenset(
    {
        "tp_size",
        "pp_size",
        "dp_size",
        "ep_size",
        "attn_dp_size",
        "attn_cp_size",
        "dcp_size",
        "moe_dp_size",
        "moe_dense_tp_size",
        "shared_experts_tp_size",
        "nnodes",
    }
)
_NEVER_NEGATIVE = _DEVICE_COUNTS | {
    "node_rank",
    "page_size",
    "context_length",
    "max_running_requests",
    "max_total_tokens",
    "max_mamba_cache_size",
    "max_prefill_tokens",
    "mem_fraction_static",
    "mamba_full_memory_ratio",
    "swa_full_tokens_ratio",
    "schedule_conservativeness",
    "hicache_ratio",
    "hicache_size",
    "linear_replayssm_cache_len",
    "mamba_track_interval",
    "cuda_graph_max_bs_decode",
    "cuda_graph_max_bs_prefill",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "port",
}
_NEVER_ZERO = frozenset({"tp_size", "pp_size", "nnodes", "page_size", "context_length", "mamba_full_memory_ratio"})


def refuse_absurd(values: Mapping[str, Any], given: frozenset[str]) -> None:
    """Raise UnusableInput for the first written value that is not a number a server could use."""
    for field in sorted(given):
        if reason := next(_faults(field, values[field]), None):
            option = option_of(field)
            raise UnusableInput(reason, where=option.name if option else field, fix=_wanted(field, option))


def _faults(field: str, value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        if len(value) > MAX_TEXT:
            yield f"It has {len(value):,} values."
        for item in value:
            yield from _faults(field, item)
    elif isinstance(value, str):
        if len(value) > MAX_TEXT and not value.lstrip().startswith(("{", "[")):
            yield f"Its value has {len(value):,} characters."
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_faults(field, value)


def _number_faults(field: str, value: int | float) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{value} is not a number that can be used."
    elif abs(value) > MAX_INT or (field in _DEVICE_COUNTS and value > MAX_DEVICES):
        yield f"{_short(value)} is larger than any real one."
    elif value < 0 and field in _NEVER_NEGATIVE:
        yield f"{_short(value)} is negative."
    elif value == 0 and field in _NEVER_ZERO:
        yield "0 is not allowed."
    elif field == "mem_fraction_static" and value > 1:
        yield f"{_short(value)} is more than the whole memory."


def _wanted(field: str, option: Option | None) -> str:
    if field == "mem_fraction_static":
        return "Give a fraction between 0 and 1, such as 0.85."
    whole = option is not None and option.type in ("int", "human_readable_int")
    return "Give a whole number." if whole else "Give a finite number."


def _short(value: int | float) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return "A number of more than 77 digits"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
