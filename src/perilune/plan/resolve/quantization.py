"""Which quantization method the engine takes for a checkpoint, and the requests it refuses.

Source: SGLang 0.5.23 `configs/model_config.py` (`_verify_quantization`) and `layers/quantization`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perilune.plan.model.config import ModelConfig
from perilune.plan.model.reading import QUANTIZATION_ORIGIN
from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution

METHODS = (
    "fp8",
    "mxfp8",
    "minimax_m3_nvfp4",
    "blockwise_int8",
    "modelopt",
    "modelopt_fp8",
    "modelopt_fp4",
    "nvfp4_online",
    "modelopt_mixed",
    "w8a8_int8",
    "w8a8_fp8",
    "awq",
    "awq_marlin",
    "bitsandbytes",
    "gguf",
    "gptq_marlin",
    "moe_wna16",
    "compressed-tensors",
    "w4afp8",
    "petit_nvfp4",
    "quark",
    "quark_mxfp4",
    "auto-round",
    "auto-round-int8",
    "modelslim",
    "quark_int4fp8_moe",
    "humming",
    "mxfp_w4a8",
)
ROCM_METHODS = frozenset(
    {
        "awq",
        "fp8",
        "compressed_tensors",
        "compressed-tensors",
        "w8a8_fp8",
        "petit_nvfp4",
        "quark",
        "mxfp4",
        "mxfp8",
        "auto-round",
        "auto-round-int8",
        "quark_int4fp8_moe",
        "quark_mxfp4",
    }
)
ACCEPTED_FOR = {
    "modelopt_fp8": {"modelopt"},
    "modelopt_fp4": {"modelopt", "fp8"},
    "modelopt_mixed": {"modelopt"},
    "nvfp4_online": {"fp8", "modelopt_fp8"},
    "minimax_m3_nvfp4": {"mxfp8"},
    "petit_nvfp4": {"modelopt"},
    "w8a8_int8": {"compressed-tensors", "compressed_tensors"},
    "w8a8_fp8": {"compressed-tensors", "compressed_tensors"},
    "auto-round-int8": {"compressed-tensors", "compressed_tensors"},
}
MODELOPT_ALGORITHMS = {
    "FP8": "modelopt_fp8",
    "MXFP8": "mxfp8",
    "FP4": "modelopt_fp4",
    "NVFP4": "modelopt_fp4",
    "NVFP4_AWQ": "modelopt_fp4",
    "W4A16_NVFP4": "modelopt_fp4",
}
ONLINE_REQUANTIZATION = "quark_mxfp4"


def checkpoint_method(model: ModelConfig) -> str | None:
    """The method the checkpoint declares, ModelOpt's algorithms told apart; None for a plain checkpoint."""
    if model.known is not None and model.known.quantization is not None:
        return model.known.quantization.method
    section = model.quantization_config
    if section is None:
        return None
    if section.get("quant_method", "modelopt") == "modelopt":
        parsed = _modelopt_method(section)
        if parsed is not None:
            return parsed
    return str(section.get("quant_method", "")).lower()


def effective_method(r: Resolution) -> str | None:
    """The method the engine loads the weights with; raises its rejection for a request that conflicts."""
    asked: str | None = r["quantization"]
    declared = checkpoint_method(r.model)
    method = asked.lower() if asked else None
    if declared is not None:
        declared = declared or method or ""
        override = _override(r, declared, method) if method != ONLINE_REQUANTIZATION else None
        if override is not None:
            method = declared = override
        if method is None:
            method = declared
        elif method not in (declared, ONLINE_REQUANTIZATION) and declared not in ACCEPTED_FOR.get(method, ()):
            raise r.reject(
                f"Quantization method specified in the model config ({declared}) does not match the "
                f"quantization method specified in the `quantization` argument ({method})."
            )
    if method is None:
        return None
    supported = [*METHODS, "gptq", "mxfp4"] if machine.is_npu(r.platform) else [*METHODS, "mxfp4"]
    if method not in supported:
        raise r.reject(f"Unknown quantization method: {method}. Must be one of {supported}.")
    if machine.is_hip(r.platform) and method not in ROCM_METHODS:
        raise r.reject(f"{method} quantization is currently not supported in ROCm.")
    return method


def take_checkpoint_method(r: Resolution) -> str | None:
    """Write the config's own method into the arguments, unless one was chosen or ruled out with `unquant`."""
    beside = QUANTIZATION_ORIGIN in (r.model.quantization_config or {})
    method = None if beside else checkpoint_method(r.model) or None
    if r["quantization"] is None and r.written["quantization"] != "unquant" and method is not None:
        r.set("quantization", method, "The checkpoint is stored that way.")
    return method


def layer_algorithms(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Layer name and algorithm (upper case) of every layer that a ModelOpt section quantizes by itself."""
    layers = section.get("quantized_layers")
    for name, layer in layers.items() if isinstance(layers, Mapping) else ():
        if isinstance(layer, Mapping):
            yield name, str(layer.get("quant_algo", "")).upper()


def _modelopt_method(section: Mapping[str, Any]) -> str | None:
    inner = section.get("quantization", section)
    if not isinstance(inner, Mapping):
        return None
    algorithm = inner.get("quant_algo")
    if not isinstance(algorithm, str) or not algorithm:
        return None
    if algorithm == "MIXED_PRECISION":
        algorithms = {algorithm for _, algorithm in layer_algorithms(inner)}
        return "modelopt_mixed" if {"NVFP4", "W4A16_NVFP4"} & algorithms else "w4afp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algorithm)


def _override(r: Resolution, declared: str, asked: str | None) -> str | None:
    """A checkpoint format that wins over what was asked, or an asked method that reads any format."""
    if asked == "moe_wna16" and machine.is_npu(r.platform):
        text = 'NPU hardware does not support "get_min_capability" feature.'
        raise r.reject(text, error="NotImplementedError")
    if asked != "nvfp4_online":
        algorithm = str((r.model.quantization_config or {}).get("quant_algo", "")).upper()
        if asked == "modelopt" and algorithm in MODELOPT_ALGORITHMS:
            return MODELOPT_ALGORITHMS[algorithm]
        if declared in ("modelopt_fp8", "modelopt_fp4"):
            return declared
    if declared == "modelopt_mixed":
        return declared
    if asked == "humming" and declared != "mxfp4":
        return asked
    return None
