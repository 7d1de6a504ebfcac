"""LoRA adapters: their list, their limits, and the MoE runners and speculation they run with."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from perilune.plan.resolve.machine import is_hip
from perilune.plan.resolve.speculation.common import RAGGED_ENV
from perilune.plan.resolve.state import Resolution

SPECULATION = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})
CHUNK_SIZES = frozenset({16, 32, 64, 128})
QUANTIZATION = frozenset({None, "fp8", "modelopt_fp4"})


def check_lora(r: Resolution) -> None:
    """Switch LoRA on when adapters are given, list them by stable id, and check their limits."""
    if r["max_loras_per_batch"] <= 0:
        raise r.reject("max_loras_per_batch must be positive", error="AssertionError")
    if r["lora_paths"]:
        if r["enable_lora"] is None:
            r.set("enable_lora", True, "--lora-paths switches LoRA on.")
        elif not r["enable_lora"]:
            r.warn("--lora-paths is ignored, because LoRA is switched off.")
    if r["enable_lora"]:
        _check_adapters(r)
    _check_moe_runner(r)


def _check_adapters(r: Resolution) -> None:
    if r["lora_backend"] == "triton_v2" and not r["moe_runner_backend"].startswith("lora"):
        _check_modes(r, "--lora-backend triton_v2")
    _check_overlap_loading(r)
    _check_speculation(r)
    paths = [_adapter(r, path) for path in r["lora_paths"] or ()]
    r.set("lora_paths", paths, "Every adapter gets an id that is the same on all nodes.")
    targets = r["lora_target_modules"]
    if targets:
        targets = sorted(set(targets))
        r.set("lora_target_modules", targets, "Target modules are a set.")
        if "all" in targets and len(targets) != 1:
            raise r.reject(
                "If 'all' is specified in --lora-target-modules, it should be the only module specified.",
                error="AssertionError",
            )
    if not paths and not (r["max_lora_rank"] and targets):
        raise r.reject(
            "When no initial --lora-paths is provided, you need to specify both --max-lora-rank and "
            "--lora-target-modules for LoRA initialization.",
            error="AssertionError",
        )
    _check_limits(r, len(paths))


def _adapter(r: Resolution, path: str | dict[str, Any]) -> dict[str, Any]:
    """An adapter's id, name, path and whether it is pinned, from `name=path`, a path or a JSON object."""
    if isinstance(path, str):
        name, given, location = path.partition("=")
        pinned, location = False, location if given else path
        name = name if given else path
    else:
        if "lora_name" not in path or "lora_path" not in path:
            raise r.reject(
                "When providing LoRA paths as a list of dict, each dict should contain 'lora_name' and "
                f"'lora_path' keys. Got: {path}",
                error="AssertionError",
            )
        name, location, pinned = path["lora_name"], path["lora_path"], path.get("pinned", False)
    try:
        identity = uuid5(NAMESPACE_URL, f"{name}\0{location}").hex
    except UnicodeEncodeError as error:
        raise r.reject(str(error), error="UnicodeEncodeError") from None
    return {"lora_id": identity, "lora_name": name, "lora_path": location, "pinned": pinned}


def _check_modes(r: Resolution, option: str) -> None:
    unsupported = (
        (r["attn_dp_size"] > 1, "DP-attention with --attn-dp-size > 1"),
        (r["enable_pdmux"], "PD-multiplexing"),
        (r["enable_two_batch_overlap"], "two-batch overlap"),
        (r.flag_env("SGLANG_EXPERIMENTAL_LORA_OPTI"), "SGLANG_EXPERIMENTAL_LORA_OPTI"),
        (is_hip(r.platform), "ROCm"),
    )
    for applies, mode in unsupported:
        if applies:
            raise r.reject(f"{option} does not yet support {mode}")


def _check_overlap_loading(r: Resolution) -> None:
    overlap = r["enable_lora_overlap_loading"]
    if overlap is None:
        r.set("enable_lora_overlap_loading", False, "Adapters load before they are used by default.")
    limit = r["max_loras_per_batch"] * 2
    loaded = r["max_loaded_loras"]
    if overlap and (loaded is None or loaded > limit):
        raise r.reject(
            "Enabling LoRA overlap loading requires pinning LoRA adapter weights in CPU memory, so "
            "--max-loaded-loras must be less than or equal to double --max-loras-per-batch: "
            f"{limit}",
            error="AssertionError",
        )


def _check_limits(r: Resolution, adapters: int) -> None:
    loaded, batch = r["max_loaded_loras"], r["max_loras_per_batch"]
    if loaded is not None and loaded < batch:
        raise r.reject(
            "max_loaded_loras should be greater than or equal to max_loras_per_batch. "
            f"max_loaded_loras={loaded}, max_loras_per_batch={batch}",
            error="AssertionError",
        )
    if loaded is not None and adapters > loaded:
        raise r.reject(
            "The number of LoRA paths should not exceed max_loaded_loras. "
            f"max_loaded_loras={loaded}, lora_paths={adapters}",
            error="AssertionError",
        )
    chunk = r["max_lora_chunk_size"]
    if chunk is not None and chunk not in CHUNK_SIZES:
        raise r.reject("--max-lora-chunk-size must be a power of 2 between 16 and 128.", error="AssertionError")
    if not r["lora_drain_wait_threshold"] >= 0:
        raise r.reject("--lora-drain-wait-threshold must be non-negative.", error="AssertionError")


def _check_speculation(r: Resolution) -> None:
    """Adapters need verify steps of one width per request; a draft runs without them."""
    algorithm = r["speculative_algorithm"]
    if algorithm in (None, "NGRAM"):
        return
    if algorithm not in SPECULATION:
        promoted = (
            " (NEXTN/EAGLE with a Gemma4 assistant draft is automatically promoted to FROZEN_KV_MTP, which "
            "does not support LoRA)"
            if algorithm == "FROZEN_KV_MTP"
            else ""
        )
        raise r.reject(
            "LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH, or DSPARK speculative "
            f"decoding, not {algorithm}{promoted}."
        )
    mode = r.env.get(RAGGED_ENV, "static")
    runners = (r["moe_runner_backend"], r["speculative_moe_runner_backend"])
    unsupported = (
        (
            algorithm == "DSPARK" and mode != "static",
            f"{RAGGED_ENV}={mode!r}: the per-request verify lengths it schedules break the uniform-width "
            "LoRA segment layout",
        ),
        (
            r["speculative_adaptive"],
            "--speculative-adaptive: the draft is built from a static ServerArgs snapshot, and the "
            "runtime-state swap does not rebuild LoRA cuda-graph metadata",
        ),
        (
            "experimental_sgl_trtllm" in runners,
            "the experimental_sgl_trtllm MoE runner: its TopK reads the LoRA config per forward, which the "
            "draft resolves against the target's after its own publish ended",
        ),
        (
            r.flag_env("SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
            "SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1: LoRA batch preparation would run on the plan stream, "
            "unordered against in-flight forwards",
        ),
    )
    for applies, what in unsupported:
        if applies:
            raise r.reject(f"LoRA with EAGLE/NEXTN/EAGLE3 speculative decoding does not support {what}.")


def _check_moe_runner(r: Resolution) -> None:
    """Check a LoRA MoE runner against the adapters, the weights and the expert placement it supports."""
    draft, runner = r["speculative_moe_runner_backend"], r["moe_runner_backend"]
    if r["speculative_algorithm"] is not None and draft is not None and draft.startswith("lora"):
        raise r.reject(
            f"--speculative-moe-runner-backend {draft} is not supported: the LoRA MoE runner serves adapter "
            "traffic on the target model"
        )
    if not runner.startswith("lora"):
        return
    option, quantization = f"--moe-runner-backend {runner}", r["quantization"]
    if not r["enable_lora"]:
        raise r.reject(f"{option} requires --enable-lora (or --lora-paths)")
    if r["lora_backend"] != "triton_v2":
        raise r.reject(f"{option} requires --lora-backend triton_v2")
    _check_modes(r, option)
    if quantization not in QUANTIZATION:
        raise r.reject(
            f"{option} supports unquantized BF16, 128-block FP8 and ModelOpt NVFP4 MoE, got --quantization "
            f"{quantization}"
        )
    if quantization == "modelopt_fp4" and runner != "lora_marlin":
        raise r.reject(f"{option} cannot run ModelOpt NVFP4 MoE; use --moe-runner-backend lora_marlin")
    if r["moe_a2a_backend"] != "none":
        raise r.reject(f"{option} requires Standard dispatch, got --moe-a2a-backend {r['moe_a2a_backend']}")
    if r["ep_join_mode"] is not None:
        raise r.reject(f"{option} does not yet support elastic EP")
    if r["enable_eplb"] or r["init_expert_location"] != "trivial" or r["ep_num_redundant_experts"] > 0:
        raise r.reject(f"{option} currently requires trivial expert placement without EPLB or redundant experts")
