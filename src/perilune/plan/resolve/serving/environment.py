"""The environment variables the engine writes for its workers. Source: SGLang 0.5.23 `serving_hook.py`."""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.serving.media import feature_transport
from perilune.plan.resolve.state import Resolution

CI_WATCHDOG: Final = 300  # seconds
FP8_OUTPUT: Final = "SGLANG_OPT_FP8_WO_A_GEMM"


def environment_variables(r: Resolution) -> None:
    """Settle the feature transport and export what workers read from their environment."""
    feature_transport(r)
    _export(r, "SGLANG_ENABLE_TORCH_COMPILE", r["enable_torch_compile"])
    if r["mamba_ssm_dtype"] is not None:
        r.env["SGLANG_MAMBA_SSM_DTYPE"] = str(r["mamba_ssm_dtype"])
    _export(r, "SGLANG_DISABLE_OUTLINES_DISK_CACHE", r["disable_outlines_disk_cache"])
    _export(r, "SGLANG_ENABLE_DETERMINISTIC_INFERENCE", r["enable_deterministic_inference"])
    if r["enable_deterministic_inference"]:
        r.env["SGLANG_FLASHINFER_MOE_FUSED_FINALIZE"] = "0"
    if r["debug_cuda_graph"]:
        _debug_cuda_graph(r)
    if r["enable_deepseek_v4_fp4_indexer"] and not (machine.is_sm100(r.platform) or machine.is_hip(r.platform)):
        raise r.reject(
            "--enable-deepseek-v4-fp4-indexer requires SM100, SM120, or gfx95 GPUs with FP4 indexer support."
        )
    _fp8_output_projection(r)


def crash_dump(r: Resolution) -> None:
    """Ask CUDA for core dumps beside the crash dumps, where the user did not set that up."""
    folder = r["crash_dump_folder"]
    if not folder:
        return
    defaults = {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_SHOW_PROGRESS": "1",
        "CUDA_COREDUMP_GENERATION_FLAGS": (
            "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
        ),
        "CUDA_COREDUMP_FILE": f"{folder}/%h/core.cuda.%t.%p",
        "CUDA_COREDUMP_PIPE": "/tmp/corepipe.cuda.%h.%p",  # noqa: S108 - the engine's own path
    }
    for name, value in defaults.items():
        r.env.setdefault(name, value)


def debug_utils(r: Resolution) -> None:
    """In CI the soft watchdog is on."""
    if r.flag_env("SGLANG_IS_IN_CI") and r["soft_watchdog_timeout"] is None:
        r.set("soft_watchdog_timeout", CI_WATCHDOG, "SGLANG_IS_IN_CI is set.")


def _export(r: Resolution, name: str, value: object) -> None:
    r.env[name] = "1" if value else "0"


def _debug_cuda_graph(r: Resolution) -> None:
    if machine.is_npu(r.platform):
        r.warn("--debug-cuda-graph is ignored: there are no CUDA graphs on this device.")
        r.set("debug_cuda_graph", False, "Needs CUDA or ROCm.")
        return
    r.env["SGLANG_USE_BREAKABLE_CUDA_GRAPH"] = "1"
    r.warn("With --debug-cuda-graph everything runs eagerly through the capture path.")


def _fp8_output_projection(r: Resolution) -> None:
    """The FP8 output projection needs DeepGEMM's JIT: by default on SM100, on SM90 when asked for."""
    if not machine.is_cuda(r.platform) or not r.flag_env(FP8_OUTPUT, default=True):
        return
    explicit = FP8_OUTPUT in r.env
    jit = r.flag_env("SGLANG_ENABLE_JIT_DEEPGEMM", default=True)
    if jit and (machine.is_sm100(r.platform) or explicit):
        return
    if explicit:
        r.warn(f"{FP8_OUTPUT} is off: it needs DeepGEMM's JIT.")
    r.env[FP8_OUTPUT] = "False"
