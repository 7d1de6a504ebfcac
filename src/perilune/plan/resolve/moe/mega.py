"""The fused MegaMoE kernel as an all-to-all. Source: SGLang 0.5.23 `arg_groups/mega_moe_hook.py`."""

from __future__ import annotations

from perilune.plan.resolve import machine
from perilune.plan.resolve.state import Resolution


def mega_moe(r: Resolution) -> None:
    """Read the runner name `megamoe` as the all-to-all, and refuse it where the kernel does not exist."""
    if r["moe_runner_backend"] == "megamoe":
        if r["moe_a2a_backend"] not in ("none", "megamoe"):
            r.warn(f"--moe-runner-backend megamoe replaces --moe-a2a-backend {r['moe_a2a_backend']}.")
        reason = "--moe-runner-backend megamoe means --moe-a2a-backend megamoe."
        r.set("moe_runner_backend", "auto", reason)
        r.set("moe_a2a_backend", "megamoe", reason)
    if r["moe_a2a_backend"] != "megamoe":
        return
    if r["enable_two_batch_overlap"] or r["enable_single_batch_overlap"]:
        raise r.reject(
            "--moe-a2a-backend megamoe has no two-batch / single-batch overlap decomposition; disable "
            "--enable-two-batch-overlap and --enable-single-batch-overlap."
        )
    if machine.is_npu(r.platform):
        raise r.reject(
            "--moe-a2a-backend megamoe needs a CUDA SM90 GPU (block-FP8 experts) or an SM100-class GPU "
            "(MXFP4 / NVFP4 experts); it runs DeepGEMM kernels over CUDA symmetric memory. On ROCm, set "
            "SGLANG_AMD_USE_FLYDSL_MEGA_MOE=1 to select aiter MegaMoEv2 instead."
        )
