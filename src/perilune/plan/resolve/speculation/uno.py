"""UNO: the target drafts for itself through an adapter, as a line or a tree."""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import mul

from perilune.plan.resolve.machine import is_npu
from perilune.plan.resolve.speculation.common import disable_mixed_chunk, force_one
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends, runs_attention_dp

MAX_TREE_NODES = 128
MAX_FRONTIER = 2048


def uno(r: Resolution) -> None:
    """Check UNO's adapter, width and tree, and everything it does not run with."""
    _check_inputs(r)
    width = r["speculative_num_draft_tokens"]
    if width is None or width < 1:
        raise r.reject(
            "UNO requires --speculative-num-draft-tokens to be a positive integer denoting the linear width "
            "or tree verify width Q."
        )
    topk = 1 if r["speculative_eagle_topk"] is None else r["speculative_eagle_topk"]
    if topk < 1:
        raise r.reject(f"UNO requires --speculative-eagle-topk to be at least 1, got {topk}.")
    if topk > 1:
        _check_tree(r, width, topk)
    else:
        force_one(r, "UNO", "speculative_num_steps", "speculative_eagle_topk")
    _check_topology(r)


def _check_inputs(r: Resolution) -> None:
    if is_npu(r.platform):
        raise r.reject("UNO only supports CUDA.")
    if r["speculative_draft_model_path"] is not None:
        raise r.reject("UNO reuses the target model and does not accept --speculative-draft-model-path.")
    if r["uno_lora_path"] is None:
        raise r.reject("UNO requires --uno-lora-path.")
    if r["enable_deterministic_inference"]:
        raise r.reject(
            "UNO does not support --enable-deterministic-inference because its sampling path does not use "
            "per-request seeds."
        )
    if r["enable_strict_thinking"]:
        raise r.reject("UNO does not support --enable-strict-thinking because it requires grammar decoding.")


def _check_tree(r: Resolution, width: int, topk: int) -> None:
    """A tree of `width` nodes must fit what `steps` levels of `topk` branches can hold."""
    steps = r["speculative_num_steps"]
    if steps is None:
        raise r.reject(
            "UNO tree mode requires --speculative-num-steps so its draft width F can be derived as "
            "speculative_num_steps + 1."
        )
    if steps < 1:
        raise r.reject(f"UNO tree mode requires --speculative-num-steps to be positive, got {steps}.")
    draft = steps + 1
    if width < draft:
        raise r.reject(f"UNO tree mode requires Q >= F; got Q={width}, F={draft}.")
    if width > MAX_TREE_NODES:
        raise r.reject(f"UNO tree mode currently supports at most Q=128 verify nodes, got Q={width}.")
    if width * topk > MAX_FRONTIER:
        raise r.reject(f"UNO tree mode currently supports Q*K <= 2048; got Q*K={width}*{topk}={width * topk}.")
    capacity = _tree_capacity(topk, steps, width)
    if width > capacity:
        raise r.reject(
            "UNO tree mode cannot build the requested Q from F and K: "
            f"Q={width} exceeds capacity={capacity} for F={draft}, K={topk}."
        )
    parents = topk * (steps - 1) + 1
    if width - 1 > parents:
        raise r.reject(
            "UNO tree mode cannot represent the requested Q in EAGLE's parent-list ABI: "
            f"Q-1={width - 1} exceeds K*(F-2)+1={parents} for F={draft}, K={topk}."
        )
    if r["enable_pdmux"]:
        raise r.reject("UNO tree mode does not yet support PDMux.")
    if r["enable_two_batch_overlap"]:
        raise r.reject("UNO tree mode does not yet support two-batch overlap.")
    if r["speculative_accept_threshold_single"] != 1.0 or r["speculative_accept_threshold_acc"] != 1.0:
        raise r.reject(
            "UNO tree mode reuses EAGLE target-only sampling and requires both speculative accept thresholds to be 1.0."
        )


def _tree_capacity(topk: int, steps: int, enough: int) -> int:
    """Nodes of a full tree with `steps` levels under its root, counted only until there are `enough`."""
    capacity = 1
    for level in accumulate(repeat(topk, steps), mul):
        capacity += level
        if capacity >= enough:
            break
    return capacity


def _check_topology(r: Resolution) -> None:
    if (r["tp_size"], r["pp_size"]) != (1, 1):
        raise r.reject("UNO requires TP=PP=1.")
    if runs_attention_dp(r) or r["attn_cp_size"] != 1:
        raise r.reject("UNO does not support DP attention or context parallelism.")
    if r["enable_lora"] or r["lora_paths"]:
        raise r.reject("UNO does not support public Multi-LoRA serving.")
    r.set("enable_lora_overlap_loading", False, "UNO loads its own adapter up front.")
    r.set("lora_strict_loading", True, "UNO's adapter must load completely.")
    if r["speculative_use_rejection_sampling"]:
        raise r.reject(
            "UNO manages its own stochastic verification and does not use --speculative-use-rejection-sampling."
        )
    disable_mixed_chunk(r, "UNO")
    prefill, decode = attention_backends(r)
    if (prefill, decode) != ("fa3", "fa3"):
        raise r.reject(
            f"UNO requires FA3 for both prefill and decode attention; got prefill={prefill!r}, decode={decode!r}."
        )
