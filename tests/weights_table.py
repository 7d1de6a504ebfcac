"""Weight bytes of one GPU as the real SGLang 0.5.23 model classes allocate them, for many parallel shapes.

`engine_bytes` was read from the engine's own parameters and buffers, built on torch's meta device, before anything is
converted after loading. `tests/conformance/test_weights.py` reads them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perilune.plan.model import ParallelShape, geometry_of, known_config, resident_weights
from perilune.plan.model.geometry.experts import resident_slice
from perilune.plan.model.geometry.resident import BIASES, ROUTED

K3 = "moonshotai/Kimi-K3"
RED_HAT = "RedHatAI/Kimi-K3-NVFP4"
NVIDIA = "nvidia/Kimi-K3-NVFP4"
DSPARK = "RadixArk/Kimi-K3-DSpark"
LINEAR = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"
QWEN = "Qwen/Qwen3.5-397B-A17B"
QWEN_DENSE = "Qwen/Qwen3.5-27B"
NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
ULTRA = "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"
GLM = "zai-org/GLM-5.3-Flash"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
LLAMA = "meta-llama/Llama-3.3-70B-Instruct"

AFTER_LOADING = frozenset(
    {
        "w_kc",
        "w_vc",
        "score rows, BF16",
        "score rows, F32",
        "output score row, BF16",
        "output score row, F32",
        "f_a copy",
        "beta copy",
        "f_b copy",
    }
)
"""Tensors the engine makes out of loaded ones; its constructors do not allocate them."""


@dataclass(frozen=True)
class WeightCase:
    """One GPU of one server: the engine's arguments, and the same as a parallel shape."""

    id: str
    model: str
    argv: str
    shape: dict[str, Any]
    engine_bytes: int
    platform: str = "b300"
    stage: int = 0
    env: dict[str, str] = field(default_factory=dict)


PLATFORMS: dict[str, dict[str, Any]] = {
    "b300": {"kind": "cuda", "sm": 103},
    "h200": {"kind": "cuda", "sm": 90},
    "mi355x": {"kind": "hip", "sm": None},
    "npu": {"kind": "npu", "sm": None},
}


def shape_of(case: WeightCase) -> ParallelShape:
    """The case's parallel shape on its platform; Kimi-K3 on Blackwell loads with flashinfer_mxfp4 unless told."""
    runner = "flashinfer_mxfp4" if case.model == K3 and case.platform == "b300" else "auto"
    return ParallelShape(**{"moe_runner": runner, **PLATFORMS[case.platform], **case.shape})


def constructed_bytes(case: WeightCase) -> int:
    """Our bytes of what the engine allocates when it builds the model, biases still in BF16."""
    geometry, shape = geometry_of(known_config(case.model)), shape_of(case)
    total = 0
    for group in resident_weights(geometry, shape, case.stage):
        if group.name == ROUTED:
            total += group.bytes
        elif group.name == BIASES and geometry.experts is not None:
            piece = resident_slice(geometry.experts, shape)
            values = piece.local * (geometry.experts.up_matrices * piece.intermediate + piece.hidden)
            total += group.bytes // piece.bias_bytes * values * 2
        else:
            total += sum(part.bytes for part in group.parts if part.tensors.name not in AFTER_LOADING)
    return total


def _case(name: str, model: str, argv: str, shape: dict[str, Any], engine_bytes: int, **rest: Any) -> WeightCase:
    return WeightCase(name, model, argv, shape, engine_bytes, **rest)


CASES = (
    _case("k3-tp8", K3, "--tp-size 8", {"tp": 8}, 206_668_786_160),
    _case("k3-tp16-padded-experts", K3, "--tp-size 16", {"tp": 16}, 139_981_866_872),
    _case("k3-tp4", K3, "--tp-size 4", {"tp": 4}, 400_353_832_672),
    _case("k3-tp6-padded-vocabulary", K3, "--tp-size 6", {"tp": 6}, 271_231_080_000),
    _case("k3-tp8-ep8", K3, "--tp-size 8 --ep-size 8", {"tp": 8, "ep": 8}, 206_151_772_656),
    _case("k3-tp16-ep2", K3, "--tp-size 16 --ep-size 2", {"tp": 16, "ep": 2}, 109_530_826_616),
    _case("k3-pp2-first", K3, "--tp-size 8 --pp-size 2", {"tp": 8, "pp": 2}, 101_722_534_800),
    _case("k3-pp2-last", K3, "--tp-size 8 --pp-size 2", {"tp": 8, "pp": 2}, 105_840_985_696, stage=1),
    _case("k3-pp8-middle", K3, "--tp-size 4 --pp-size 8", {"tp": 4, "pp": 8}, 52_779_398_240, stage=4),
    _case("k3-attn-dp2", K3, "--tp-size 8 --attn-dp-size 2", {"tp": 8, "attn_dp": 2}, 215_906_168_544),
    _case(
        "k3-attn-dp8-lm-head",
        K3,
        "--tp-size 8 --attn-dp-size 8 --enable-dp-lm-head",
        {"tp": 8, "attn_dp": 8, "dp_lm_head": True},
        273_385_671_808,
    ),
    _case(
        "k3-dense-tp1-changes-nothing",
        K3,
        "--tp-size 8 --attn-dp-size 8 --moe-dense-tp-size 1",
        {"tp": 8, "attn_dp": 8, "moe_dense_tp": 1},
        271_330_462_848,
    ),
    _case(
        "k3-megamoe-whole-shared-experts",
        K3,
        "--tp-size 8 --moe-a2a-backend megamoe",
        {"tp": 8, "ep": 8, "moe_a2a": "megamoe"},
        227_423_185_392,
    ),
    _case(
        "k3-megamoe-shared-tp4",
        K3,
        "--tp-size 8 --moe-a2a-backend megamoe --shared-experts-tp-size 4",
        {"tp": 8, "ep": 8, "moe_a2a": "megamoe", "shared_experts_tp": 4},
        209_190_545_904,
    ),
    _case(
        "k3-tp16-deep-gemm",
        K3,
        "--tp-size 16 --moe-runner-backend deep_gemm",
        {"tp": 16, "moe_runner": "deep_gemm"},
        109_826_262_904,
    ),
    _case(
        "k3-tp16-triton",
        K3,
        "--tp-size 16 --moe-runner-backend triton_kernel",
        {"tp": 16, "moe_runner": "triton_kernel"},
        109_826_262_904,
    ),
    _case(
        "k3-h200-tp16-marlin",
        K3,
        "--tp-size 16 --moe-runner-backend marlin",
        {"tp": 16, "moe_runner": "marlin"},
        139_981_866_872,
        platform="h200",
    ),
    _case(
        "k3-h200-tp16-ep16-marlin",
        K3,
        "--tp-size 16 --ep-size 16 --moe-runner-backend marlin",
        {"tp": 16, "ep": 16, "moe_runner": "marlin"},
        109_272_319_864,
        platform="h200",
    ),
    _case("k3-mi355x-tp8", K3, "--tp-size 8", {"tp": 8}, 266_220_300_784, platform="mi355x"),
    _case("k3-mi355x-tp8-ep8", K3, "--tp-size 8 --ep-size 8", {"tp": 8, "ep": 8}, 205_951_298_032, platform="mi355x"),
    _case("k3-ascend-tp32", K3, "--tp-size 32", {"tp": 32}, 60_782_474_812, platform="npu"),
    _case(
        "k3-ascend-tp32-deepep",
        K3,
        "--tp-size 32 --moe-a2a-backend deepep",
        {"tp": 32, "ep": 32, "moe_a2a": "deepep"},
        84_332_967_484,
        platform="npu",
    ),
    _case("red-hat-tp8", RED_HAT, "--tp-size 8", {"tp": 8}, 216_588_982_768),
    _case("red-hat-tp16", RED_HAT, "--tp-size 16", {"tp": 16}, 114_491_914_104),
    _case("nvidia-tp8", NVIDIA, "--tp-size 8", {"tp": 8}, 211_693_210_096),
    _case("dspark-tp8", DSPARK, "--tp-size 8", {"tp": 8}, 1_427_285_248),
    _case("dspark-tp16", DSPARK, "--tp-size 16", {"tp": 16}, 1_188_734_208),
    _case("kimi-linear-tp8", LINEAR, "--tp-size 8", {"tp": 8}, 12_344_918_848),
    _case("kimi-linear-attn-dp2", LINEAR, "--tp-size 8 --attn-dp-size 2", {"tp": 8, "attn_dp": 2}, 12_393_546_560),
    _case(
        "qwen3-next-tp8-triton",
        NEXT,
        "--tp-size 8 --moe-runner-backend triton",
        {"tp": 8, "moe_runner": "triton"},
        20_034_889_568,
    ),
    _case(
        "qwen3-next-attn-dp2-trtllm",
        NEXT,
        "--tp-size 8 --attn-dp-size 2 --moe-runner-backend flashinfer_trtllm",
        {"tp": 8, "attn_dp": 2, "moe_runner": "flashinfer_trtllm"},
        39_818_996_416,
    ),
    _case("qwen3.5-tp8", QWEN, "--tp-size 8", {"tp": 8}, 99_542_030_220),
    _case("qwen3.5-attn-dp4", QWEN, "--tp-size 8 --attn-dp-size 4", {"tp": 8, "attn_dp": 4}, 106_777_962_544),
    _case("qwen3.5-pp2-last", QWEN, "--tp-size 8 --pp-size 2", {"tp": 8, "pp": 2}, 49_863_152_700, stage=1),
    _case("qwen3.5-dense-tp2", QWEN_DENSE, "--tp-size 2", {"tp": 2}, 27_428_996_208),
    _case(
        "qwen3.5-dense-whole-encoder",
        QWEN_DENSE,
        "--tp-size 8 --mm-enable-dp-encoder",
        {"tp": 8, "encoder_dp": True},
        7_758_210_208,
    ),
    _case(
        "nemotron-nano-tp2",
        NANO,
        "--tp-size 2 --moe-runner-backend triton",
        {"tp": 2, "moe_runner": "triton"},
        31_586_006_528,
    ),
    _case(
        "nemotron-ultra-attn-dp2",
        ULTRA,
        "--tp-size 8 --attn-dp-size 2 --moe-runner-backend triton",
        {"tp": 8, "attn_dp": 2, "moe_runner": "triton"},
        146_268_282_880,
    ),
    _case("glm-tp4", GLM, "--tp-size 4 --disable-radix-cache", {"tp": 4}, 157_428_227_448),
    _case(
        "glm-attn-dp4",
        GLM,
        "--tp-size 8 --attn-dp-size 4 --disable-radix-cache",
        {"tp": 8, "attn_dp": 4},
        84_258_158_072,
    ),
    _case(
        "glm-deepep",
        GLM,
        "--tp-size 8 --disable-radix-cache --moe-a2a-backend deepep",
        {"tp": 8, "ep": 8, "moe_a2a": "deepep"},
        80_906_645_816,
    ),
    _case("deepseek-tp16", DEEPSEEK, "--tp-size 16", {"tp": 16}, 43_181_325_248),
    _case(
        "deepseek-deepep",
        DEEPSEEK,
        "--tp-size 8 --moe-a2a-backend deepep",
        {"tp": 8, "ep": 8, "moe_a2a": "deepep"},
        87_417_659_296,
    ),
    _case(
        "deepseek-attn-dp8-dense-whole",
        DEEPSEEK,
        "--tp-size 8 --ep-size 8 --attn-dp-size 8 --enable-dp-lm-head --moe-dense-tp-size 1",
        {"tp": 8, "ep": 8, "attn_dp": 8, "dp_lm_head": True, "moe_dense_tp": 1},
        98_647_104_992,
    ),
    _case("llama-tp16", LLAMA, "--tp-size 16", {"tp": 16}, 9_056_567_296),
    _case("llama-attn-dp2", LLAMA, "--tp-size 8 --attn-dp-size 2", {"tp": 8, "attn_dp": 2}, 17_707_843_584),
)
