"""The model configuration as the engine builds it, and what it refuses while building it.

The engine reads `config.json` once, the first time a step needs it, with the options known by then.
Source: SGLang 0.5.23 `configs/model_config.py` (`ModelConfig.__init__`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from perilune.plan.model.reading import parse_config
from perilune.plan.resolve.quantization import effective_method
from perilune.plan.resolve.state import EngineModel, Resolution

DTYPES = {
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
}
MERGED_SECTIONS = frozenset({"text_config", "vision_config", "rope_scaling", "rope_parameters"})
MODELOPT_METHODS = ("modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "nvfp4_online")


def read(r: Resolution) -> None:
    """Build the model configuration, unless an earlier step already did."""
    engine_model(r)


def engine_model(r: Resolution) -> EngineModel:
    """The engine's view of the model, built on first use; raises the engine's rejection when that fails."""
    if r.engine_model is None:
        _check_quantize_and_serve(r)
        _apply_overrides(r)
        r.engine_model = EngineModel(
            is_multimodal=_is_multimodal(r),
            dtype=_dtype(r),
            context_length=_context_length(r),
            quantization=effective_method(r),
        )
    return r.engine_model


def _check_quantize_and_serve(r: Resolution) -> None:
    if not r["quantize_and_serve"]:
        return
    if r["quantization"] not in MODELOPT_METHODS:
        raise r.reject(
            "quantize_and_serve requires ModelOpt quantization (set with --quantization "
            f"{{{', '.join(MODELOPT_METHODS)}}})"
        )
    raise r.reject(
        "quantize_and_serve functionality is currently disabled due to compatibility issues. "
        "Please use the separate quantize-then-deploy workflow instead. "
        "Step 1: Quantize and export model. Step 2: Deploy the exported model.",
        error="NotImplementedError",
    )


def _apply_overrides(r: Resolution) -> None:
    """Merge `--json-model-override-args`: sections and rope scaling are merged, other fields replaced.

    Raises UnusableInput for a result that is no model configuration.
    """
    text = r["json_model_override_args"]
    if text == "{}":
        return
    try:
        overrides = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise r.reject(str(error), error=type(error).__name__) from None
    if not overrides:
        return
    if not isinstance(overrides, dict):
        raise r.reject(f"{type(overrides).__name__!r} object has no attribute 'items'", error="AttributeError")
    merged: dict[str, Any] = dict(r.model.raw)
    for name, value in overrides.items():
        current = merged.get(name)
        if name in MERGED_SECTIONS and isinstance(current, Mapping) and isinstance(value, dict):
            merged[name] = {**current, **value}
        else:
            merged[name] = value
    parse_config(merged, "--json-model-override-args")
    r.model = dataclasses.replace(r.model, raw=merged)


def _is_multimodal(r: Resolution) -> bool:
    """A nested text section makes any architecture multimodal; text-only serving makes none so."""
    text_only = r["language_model_only"] or r.model.raw.get("language_model_only")
    return not text_only and (r.model.is_multimodal or r.model.text is not r.model.raw)


def _dtype(r: Resolution) -> str:
    asked: str = r["dtype"].lower()
    if asked != "auto":
        if asked not in DTYPES:
            raise r.reject(f"Unknown dtype: {asked}")
        return DTYPES[asked]
    text, whole = r.model.text, r.model.raw
    declared = text.get("dtype") or text.get("torch_dtype") or whole.get("dtype") or whole.get("torch_dtype")
    stored = DTYPES.get(str(declared), "float32")
    return "float16" if stored == "float32" else stored


def _context_length(r: Resolution) -> int:
    derived = r.model.context_length
    asked = r["context_length"]
    if asked is None:
        return derived
    if asked > derived:
        text = (
            f"Warning: User-specified context_length ({asked}) is greater than the derived context_length "
            f"({derived}). This may lead to incorrect model outputs or CUDA errors. Note that the derived "
            "context_length may differ from max_position_embeddings in the model's config."
        )
        if not (r.flag_env("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN") or r.flag_env("SGLANG_IS_IN_CI")):
            raise r.reject(
                f"{text} To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
            )
        r.warn(f"--context-length {asked} exceeds the {derived} tokens the model was made for.")
    return int(asked)
