"""Our ledger beside the engine's own pool sizes, number for number and error for error."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perilune.errors import UnusableInput
from perilune.facts.models import Quantization
from perilune.plan.memory import Ledger, Measured, ledger
from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry import geometry_of
from perilune.plan.resolve.state import Resolved

from .compare import ours

# Name in our document -> place in the engine's verdict.
TOP = {
    "slots_per_request": ("slots_per_request",),
    "state_bytes_per_slot": ("state", "bytes_per_slot_all_layers"),
    "ring_bytes_per_slot": ("state", "replayssm_ring_bytes_per_slot_all_layers"),
    "rest_gib": ("rest_gib",),
    "kv_budget_gib": ("kv_budget_gib",),
    "mem_fraction_static": ("resolved", "mem_fraction_static"),
    "kv_bytes_per_token": ("cell_size_bytes_per_local_token",),
    "max_mamba_cache_size": ("max_mamba_cache_size",),
    "max_total_num_tokens": ("max_total_num_tokens",),
    "logical_token_capacity": ("logical_token_capacity",),
    "max_running_requests": ("max_running_requests",),
    "pp_max_micro_batch_size": ("pp_max_micro_batch_size_default",),
    "draft_pool_tokens": ("draft_pool_tokens",),
}
STAGE = {
    "linear_layers": ("layers", "kda"),
    "kv_bytes_per_token": ("cell_size_bytes_per_local_token",),
    "tokens_before_minimum": ("pp_local_tokens",),
}
POOLS = {
    "mamba_pool_slots": "mamba_pool_size_slots",
    "request_rows": "req_rows",
    "kv_rows": "mla_rows",
    "conv_bytes": "conv_bytes",
    "ssm_bytes": "ssm_bytes",
    "intermediate_ssm_bytes": "intermediate_ssm_bytes",
    "intermediate_conv_bytes": "intermediate_conv_bytes",
    "ring_bytes": "replayssm_ring_bytes",
    "req_to_token_bytes": "req_to_token_bytes",
    "kv_bytes": "mla_kv_bytes",
}
NO_LAYERS = (1 << 63) - 1  # what a stage without attention layers reports as its tokens


def our_ledger(case: Mapping[str, Any]) -> Ledger | Exception:
    """The ledger of a case; an exception is a result too."""
    resolved = ours(case)
    if isinstance(resolved, Exception):
        return resolved
    measured = Measured(case["pre_model_load_gib"], case["free_after_weights_gib"])
    try:
        geometry = geometry_of(resolved.model)
        return ledger(_with_kv_scheme(resolved, case), measured, geometry=geometry)
    except Exception as error:  # a crash is reported with the case that causes it
        return error


def _with_kv_scheme(resolved: Resolved, case: Mapping[str, Any]) -> Resolved:
    """The same server on a checkpoint that declares an FP8 KV scheme, where the case says so."""
    if case.get("kv_cache_quant_algo") != "FP8" or resolved.model.known is None:
        return resolved
    stored = Quantization(method="modelopt_mixed", kv_cache="fp8")
    known = msgspec.structs.replace(resolved.model.known, quantization=stored)
    model = ModelConfig(resolved.model.path, resolved.model.raw, known)
    return dataclasses.replace(resolved, model=model)


NO_SUCH_GROUPS = re.compile(r"parallel shape: (EP|DCP|CP) \d+ does not divide TP \d+\.")
"""A shape that the engine refuses when it builds its process groups, which the judge does not run.

We refuse it before any figure, so there is nothing to compare with the judge's.
"""


def memory_differences(case: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """What differs between our ledger and the engine's verdict, one sentence each."""
    mine = our_ledger(case)
    if isinstance(mine, UnusableInput) and NO_SUCH_GROUPS.fullmatch(str(mine)):
        return []
    if isinstance(mine, Exception):
        return [f"we raise {type(mine).__name__}: {mine}"]
    if mine.ok != verdict["ok"]:
        return [f"outcome: engine {verdict.get('error', 'ok')!r}, ours {mine.error or 'ok'!r}"]
    if not verdict["ok"]:
        wanted = verdict["error"].removeprefix("ParseError: ").split("\n", 1)[0]
        have = str(mine.error).split("\n", 1)[0]
        return [] if have == wanted else [f"error: engine {wanted!r}, ours {have!r}"]
    return list(_differences(mine.to_json(), verdict, mine.resolved["max_total_tokens"] or NO_LAYERS))


def _differences(document: Mapping[str, Any], verdict: Mapping[str, Any], most_tokens: int) -> Iterator[str]:
    for name, path in TOP.items():
        yield from _differ(name, document[name], _at(verdict, path))
    stages = verdict.get("stages") or [verdict]
    if len(stages) != len(document["stages"]):
        yield f"stages: engine {len(stages)}, ours {len(document['stages'])}"
        return
    for mine, theirs in zip(document["stages"], stages, strict=True):
        where = f"stage {mine['stage']} " if len(stages) > 1 else ""
        for name, path in STAGE.items():
            have = mine[name]
            if name == "tokens_before_minimum" and have is not None:
                have = min(have, most_tokens)  # the engine applies --max-total-tokens stage by stage
            if (wanted := _at(theirs, path)) is not None:
                yield from _differ(where + name, have, wanted)
        yield from _pool_differences(where, document, mine["pools"], theirs.get("pools") or {})


def _pool_differences(
    where: str, document: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[str]:
    if error := theirs.get("error"):
        yield from _differ(where + "allocation_error", document["allocation_error"], error.split(" @ ")[0])
        return
    for name, engine_name in POOLS.items():
        if engine_name in theirs:
            yield from _differ(f"{where}pools.{name}", mine[name], theirs[engine_name])


def _differ(name: str, have: Any, wanted: Any) -> Iterator[str]:
    if have != wanted and not (wanted == NO_LAYERS and have is None):
        yield f"{name}: engine {wanted!r}, ours {have!r}"


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
