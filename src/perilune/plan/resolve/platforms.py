"""What an accelerator family decides before and after the model is looked at.

Source: SGLang 0.5.23 `arg_groups/platform_hook.py`, `hardware_backend/npu/utils.py`, `kernel_plugins`.
"""

from __future__ import annotations

from typing import Final

from perilune.errors import UnusableInput
from perilune.plan.resolve import machine
from perilune.plan.resolve.graphs import set_phase
from perilune.plan.resolve.state import Resolution

GIB: Final = 1024  # in MiB
PINNED_TRANSFER: Final = "GPU_PINNED_MIN_XFER_SIZE"


def hardware_runtime(r: Resolution) -> None:
    """Refuse the Apple runtime, which none of the modelled platforms has."""
    if r.flag_env("SGLANG_USE_MLX"):
        raise r.reject(
            "SGLANG_USE_MLX requires stable Torch 2.13.x and MLX >= 0.32.0, but MLX is not installed; "
            "reinstall with the srt_mps extra",
            error="RuntimeError",
        )


def device_backends(r: Resolution) -> None:
    """Apply the defaults of the device: on Ascend its attention backend, page, chunk and graph size."""
    native = "npu" if machine.is_npu(r.platform) else "cuda"
    if r["device"] != native:
        raise UnusableInput(
            f"Device {str(r['device'])[:40]!r} is not modelled on {r.platform.label}.",
            where="--device",
            fix=f"Leave it out, or give {native}.",
        )
    if native == "npu":
        _ascend_defaults(r)


def symmetric_memory_support(r: Resolution) -> None:
    """Symmetric memory needs NCCL or RCCL."""
    if r["enable_symm_mem"] and machine.is_npu(r.platform):
        r.warn("Symmetric memory needs CUDA or ROCm; --enable-symm-mem is ignored.")
        r.set("enable_symm_mem", False, "Needs CUDA or ROCm.")


def amd_specifics(r: Resolution) -> None:
    """Pin the KV split count of the Triton kernels on ROCm."""
    if machine.is_hip(r.platform):
        r.set("triton_attention_num_kv_splits", 16, "Fixed on ROCm.")
        r.env.setdefault(PINNED_TRANSFER, str(4 * 1024 * 1024))


def kernel_plugins(r: Resolution) -> None:
    """The whole-model kernels need plugins that a stock installation does not have."""
    nvidia, amd = r["enable_nvidia_megakernel"], r["enable_amd_monokernel"]
    if nvidia:
        reasons = [
            "the 'nvidia_megakernel' plugin is not installed; install sgl-nvidia-mega "
            "(https://github.com/sgl-project/sgl-nvidia-mega)"
        ]
        if amd:
            reasons.append("--enable-amd-monokernel is also set; use one of the two")
        raise r.reject("\n  - ".join(["--enable-nvidia-megakernel cannot run this setup:", *reasons]))
    if amd:
        reason = "no GPU is visible"
        if not machine.is_npu(r.platform):
            reason = "no monokernel backend 'amd' is registered (registered: []); install the plugin that provides it"
        raise r.reject(f"--enable-amd-monokernel cannot run this setup:\n  - {reason}")


def _ascend_defaults(r: Resolution) -> None:
    for name in ("attention_backend", "prefill_attention_backend", "decode_attention_backend"):
        r.set(name, "ascend", "The only attention backend on Ascend.")
    if r["page_size"] is None:
        r.set("page_size", 128, "Default on Ascend.")
    memory = r.platform.memory_mib
    if memory <= 64 * GIB:
        small = memory <= 32 * GIB
        reason = f"Default for {memory:,} MiB per NPU."
        if r["chunked_prefill_size"] is None:
            r.set("chunked_prefill_size", 4096 if small else 8192, reason)
        if r["cuda_graph_config"].decode.max_bs is None:
            narrow, wide = (16, 64) if small else (64, 256)
            set_phase(r, "decode", reason, max_bs=narrow if r["tp_size"] < 4 else wide)
    r.set("disable_custom_all_reduce", True, "Ascend has no custom all-reduce.")
    if _needs_host_pool(r):
        r.set("hicache_io_backend", "kernel_ascend", "The host pool's transfer kernel on Ascend.")
        layout = "page_first_kv_split" if r.model.is_mla else "page_first_direct"
        r.set("hicache_mem_layout", layout, "The host pool's layout on Ascend.")


def _needs_host_pool(r: Resolution) -> bool:
    backs_up = r["disaggregation_decode_retraction_backup"] in (None, "host_pool")
    return bool(
        r["enable_hierarchical_cache"]
        or r["disaggregation_decode_enable_offload_kvcache"]
        or (r["disaggregation_mode"] == "decode" and backs_up)
    )
