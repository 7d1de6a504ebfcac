"""The weight bytes we predict for a GPU are those of the engine's own model classes."""

from __future__ import annotations

import copy
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perilune.plan.model import known_config
from weights_table import CASES, K3, NVIDIA, RED_HAT, WeightCase, constructed_bytes

from .oracle import Oracle

pytestmark = pytest.mark.conformance

DRIVER = Path(__file__).with_name("weights_driver.py")
IGNORED = (".k_scale", ".v_scale", ".axis_map", "blockscale_swizzled")
"""Scalars per layer, a table of indices, and scales the engine replaces by an alias after loading."""


@pytest.fixture(scope="session")
def engine_bytes(oracle: Oracle) -> Callable[[WeightCase], int]:
    """Bytes the engine allocates for a case; all cases of a platform are built by one process."""
    by_platform: dict[str, list[WeightCase]] = defaultdict(list)
    for case in CASES:
        by_platform[case.platform].append(case)
    found: dict[str, int] = {}
    for platform, cases in by_platform.items():
        asked = json.dumps([_files(case) | {"argv": case.argv.split(), "pp_rank": case.stage} for case in cases])
        command = [str(oracle.python), str(DRIVER), str(oracle.scripts), platform]
        answer = subprocess.run(command, input=asked, text=True, capture_output=True, check=True, timeout=3600)
        for case, tensors in zip(cases, json.loads(answer.stdout), strict=True):
            assert "error" not in tensors, f"{case.id}: {tensors}"
            found[case.id] = _total(case, tensors)
    return lambda case: found[case.id]


@pytest.mark.parametrize("weights", CASES, ids=lambda c: c.id)
def test_the_engine_allocates_what_we_predict(weights: WeightCase, engine_bytes: Callable[[WeightCase], int]) -> None:
    assert engine_bytes(weights) == weights.engine_bytes
    assert constructed_bytes(weights) == weights.engine_bytes


def _files(case: WeightCase) -> dict[str, Any]:
    """The config files of a checkpoint; for the NVFP4 ones, what their catalog entries describe."""
    raw = copy.deepcopy(dict(known_config(case.model).raw))
    if case.model == RED_HAT:
        raw["text_config"]["quantization_config"] = _packed_nvfp4()
    if case.model == NVIDIA:
        return {"config": raw, "hf_quant_config": {"quantization": _mixed(raw), "producer": {"name": "modelopt"}}}
    return {"config": raw}


def _packed_nvfp4() -> dict[str, Any]:
    section = copy.deepcopy(dict(known_config(K3).text["quantization_config"]))
    section["format"] = "nvfp4-pack-quantized"
    group = section["config_groups"]["group_0"]
    group["format"] = "nvfp4-pack-quantized"
    group["weights"] |= {"group_size": 16, "strategy": "tensor_group", "scale_dtype": "torch.float8_e4m3fn"}
    group["input_activations"] = {
        "num_bits": 4,
        "type": "float",
        "symmetric": True,
        "group_size": 16,
        "strategy": "tensor_group",
        "dynamic": "local",
        "observer": "static_minmax",
    }
    return section


def _mixed(raw: dict[str, Any]) -> dict[str, Any]:
    text = raw["text_config"]
    recurrent = set(text["linear_attn_config"]["kda_layers"])
    kda = ("q_proj", "k_proj", "v_proj", "g_proj", "o_proj", "f_a_proj", "f_b_proj", "b_proj")
    mla = ("fused_qkv_a_proj_with_mqa", "q_b_proj", "kv_b_proj", "o_proj", "g_proj")
    layers: dict[str, Any] = {}
    for i in range(text["num_hidden_layers"]):
        for module in kda if i + 1 in recurrent else mla:
            layers[f"model.layers.{i}.self_attn.{module}"] = {"quant_algo": "FP8"}
        if i >= text["first_k_dense_replace"]:
            layers[f"model.layers.{i}.mlp.experts"] = {"quant_algo": "NVFP4", "group_size": 16}
    return {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": layers}


def _total(case: WeightCase, tensors: dict[str, list[Any]]) -> int:
    total = 0
    for name, (_, size, count) in tensors.items():
        scalar_scales = case.model == NVIDIA and "self_attn" in name and name.endswith("_scale")
        if name.endswith(IGNORED) or scalar_scales:
            continue
        total += size // count if name.endswith("cos_sin_cache") else size
    return total
