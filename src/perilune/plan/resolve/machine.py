"""What SGLang's hardware probes answer on a platform, and what is assumed to be installed there.

Assumed everywhere: every optional package that an option needs can be imported. Assumed per kind:
CUDA 13.0 with FlashInfer 0.7.2 (which has DCP decode for MLA), ROCm 7.2 on gfx950 with aiter in use
(`SGLANG_USE_AITER` is read as 1 when unset), Ascend with torch_npu. No third-party SGLang plugin is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping

from perilune.facts.hardware import Platform

CUDA_VERSION = (13, 0)
GFX950_CAPABILITY = (9, 5)


def is_cuda(platform: Platform) -> bool:
    """Whether this is an NVIDIA GPU."""
    return platform.kind == "cuda"


def is_hip(platform: Platform) -> bool:
    """Whether this is an AMD GPU."""
    return platform.kind == "hip"


def is_npu(platform: Platform) -> bool:
    """Whether this is an Ascend NPU."""
    return platform.kind == "npu"


def capability(platform: Platform) -> tuple[int, int]:
    """The (major, minor) device capability as torch reports it; (0, 0) on an NPU."""
    if platform.kind == "cuda" and platform.sm is not None:
        return divmod(platform.sm, 10)
    return GFX950_CAPABILITY if platform.kind == "hip" else (0, 0)


def is_sm90(platform: Platform) -> bool:
    """Whether this is a Hopper GPU."""
    return platform.kind == "cuda" and capability(platform)[0] == 9


def is_sm100(platform: Platform) -> bool:
    """Whether this is a datacenter Blackwell GPU: SM100 or SM103."""
    return platform.kind == "cuda" and capability(platform)[0] == 10


def has_flashinfer(platform: Platform, env: Mapping[str, str]) -> bool:
    """Whether FlashInfer can be used: on CUDA, unless `SGLANG_IS_FLASHINFER_AVAILABLE` says no."""
    told = env.get("SGLANG_IS_FLASHINFER_AVAILABLE", "true").lower()
    return platform.kind == "cuda" and told in ("true", "1")


def has_fabric(platform: Platform) -> bool:
    """Whether NVLink reaches across nodes, as the engine recognizes it: a GB200 or GB300."""
    return platform.kind == "cuda" and any(tag in platform.accelerator.name for tag in ("GB200", "GB300"))
