"""What a checkpoint says about its experts' weights. Source: SGLang 0.5.23 `configs/model_config.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perilune.plan.model.config import ModelConfig


def declared_quantization(model: ModelConfig) -> Mapping[str, Any]:
    """The quantization section at the top of the config, which is the one these rules read; may be empty."""
    section = model.raw.get("quantization_config")
    return section if isinstance(section, Mapping) else {}


def has_hybrid_nvfp4_experts(model: ModelConfig) -> bool:
    """Whether NVFP4 experts sit in a checkpoint of mixed precision."""
    section = declared_quantization(model)
    algorithms = (str(section.get(key, "")).upper() for key in ("quant_algo", "moe_quant_algo"))
    return tuple(algorithms) == ("MIXED_PRECISION", "NVFP4") and section.get("group_size") is not None


def has_mxfp4_experts(model: ModelConfig) -> bool:
    """Whether a mixed FP8 checkpoint marks its routed experts as MXFP4."""
    return declared_quantization(model).get("routed_experts_quant_method") == "mxfp4"


def names_fp4(model: ModelConfig) -> bool:
    """Whether the declared ModelOpt algorithm is an FP4 one."""
    return "FP4" in str(declared_quantization(model).get("quant_algo", ""))
