"""Every check the engine makes once all values are final, in its order."""

from __future__ import annotations

from perilune.plan.resolve.checks.features import (
    check_communication,
    check_metrics,
    check_multiplexing,
    check_two_batch_overlap,
)
from perilune.plan.resolve.checks.hisparse import check_hisparse
from perilune.plan.resolve.checks.load_publish import check_load_publish
from perilune.plan.resolve.checks.lora import check_lora
from perilune.plan.resolve.checks.parallelism import check_parallelism
from perilune.plan.resolve.checks.scheduling import check_buckets, check_priority, check_workers
from perilune.plan.resolve.checks.watermark import check_watermark
from perilune.plan.resolve.speculation.common import MIXED_CHUNK
from perilune.plan.resolve.state import Rejected, Resolution

OBJECT_STORES = ("s3://", "gs://", "az://")


def check_server_args(r: Resolution) -> None:
    """Run the engine's final checks; a rejection here has the stage `check`."""
    try:
        _check(r)
    except Rejected as rejection:
        rejection.stage = "check"
        raise


def _check(r: Resolution) -> None:
    check_parallelism(r)
    _check_served_name(r)
    check_lora(r)
    _check_chunks(r)
    check_multiplexing(r)
    check_workers(r)
    check_buckets(r, "--prompt-tokens-buckets", r["prompt_tokens_buckets"])
    check_buckets(r, "--generation-tokens-buckets", r["generation_tokens_buckets"])
    check_priority(r)
    check_hisparse(r)
    if not r["schedule_conservativeness"] >= 0:
        raise r.reject("schedule_conservativeness must be non-negative", error="AssertionError")
    _check_loading(r)
    check_metrics(r)
    check_two_batch_overlap(r)
    check_communication(r)
    _check_canary(r)
    check_watermark(r)
    check_load_publish(r)


def _check_served_name(r: Resolution) -> None:
    name = r["served_model_name"]
    if ":" in name and not name.lower().startswith(OBJECT_STORES):
        raise r.reject(
            "served_model_name cannot contain a colon (':') character. The colon is reserved for the "
            "'model:adapter' syntax used in LoRA adapter specification. "
            f"Invalid value: '{name}'",
            error="AssertionError",
        )


def _check_chunks(r: Resolution) -> None:
    algorithm = r["speculative_algorithm"]
    if algorithm is not None and r["enable_mixed_chunk"] and algorithm not in MIXED_CHUNK:
        raise r.reject(
            f"enable_mixed_chunk is not supported with speculative_algorithm={algorithm}",
            error="AssertionError",
        )
    chunk = r["chunked_prefill_size"]
    if chunk > 0 and r["disaggregation_mode"] != "decode" and chunk % r["page_size"]:
        raise r.reject("chunked_prefill_size must be divisible by page_size", error="AssertionError")


def _check_loading(r: Resolution) -> None:
    if r["model_impl"] == "mindspore" and r.platform.kind != "npu":
        raise r.reject("MindSpore model impl is only supported on Ascend npu.", error="AssertionError")
    if r["load_format"] == "instanttensor" and r["device"] != "cuda":
        raise r.reject(
            f"InstantTensor requires a CUDA-compatible device (including CUDA and ROCm); got {r['device']!r}."
        )


def _check_canary(r: Resolution) -> None:
    thresholds = r["gc_threshold"]
    if thresholds and len(thresholds) > 3:
        raise r.reject("When setting gc_threshold, it must contain 1 to 3 integers.")
    if r["kv_canary_sweep_interval"] > 0 and r["kv_canary"] == "none":
        raise r.reject("--kv-canary-sweep-interval requires --kv-canary in {log, raise}")
