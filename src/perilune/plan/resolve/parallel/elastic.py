"""Elastic expert parallelism: groups that join, and what runtime scale-up needs.

Source: SGLang 0.5.23 `arg_groups/parallel_hook.py` (`handle_elastic_ep`), `elastic_ep/topology.py`.
"""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve.graph_config import DISABLED, FULL, GraphConfig
from perilune.plan.resolve.pd.ib_devices import normalised
from perilune.plan.resolve.state import Rejected, Resolution
from perilune.plan.resolve.view import runs_attention_dp

ELASTIC_EPLB: Final = ("elasticity_aware", "elasticity_aware_hierarchical")


def elastic_ep(r: Resolution) -> None:
    """Check elastic expert parallelism; with `--max-ep-size` above TP, that this server can be scaled up."""
    if r["elastic_ep_backend"] is not None:
        _settle_backend(r)
    _check_joiner(r)
    largest = r["max_ep_size"]
    if largest is not None:
        if r["elastic_ep_backend"] is None:
            raise _assertion(r, "--max-ep-size requires --elastic-ep-backend to be set.")
        if largest <= 0:
            raise _assertion(r, "--max-ep-size must be a positive integer.")
    scales = largest is not None and largest > r["tp_size"]
    if scales:
        _check_scale_up(r)
    elif r["elastic_ep_initial_size"] is not None:
        raise _assertion(
            r,
            "--elastic-ep-initial-size is only valid for an Elastic EP deployment with --max-ep-size larger "
            "than its local TP size.",
        )


def _assertion(r: Resolution, text: str) -> Rejected:
    return r.reject(text, error="AssertionError")


def _settle_backend(r: Resolution) -> None:
    if r["enable_eplb"]:
        if r["eplb_algorithm"] == "auto":
            r.set("eplb_algorithm", ELASTIC_EPLB[0], "Elastic EP balances around missing ranks.")
        if r["eplb_algorithm"] not in ELASTIC_EPLB:
            raise _assertion(
                r,
                "Elastic EP requires eplb_algorithm to be set to 'auto' or 'elasticity_aware(_hierarchical)'.",
            )
    if r["pp_size"] != 1:
        raise _assertion(r, "PP size should be set to 1 under elastic EP")
    if r["elastic_ep_backend"] == "mooncake":
        given = r["mooncake_ib_device"]
        if given is None:
            r.warn("No RDMA devices are named for Mooncake; it discovers them by itself.")
        else:
            reason = "The list of RDMA devices in its normal form."
            r.set("mooncake_ib_device", normalised(r, given), reason)


def _check_joiner(r: Resolution) -> None:
    mode, offset = r["ep_join_mode"], r["ep_join_rank_offset"]
    if mode is not None:
        if r["elastic_ep_backend"] is None:
            raise _assertion(r, "--elastic-ep-join-mode requires --elastic-ep-backend to be set.")
        if mode == "scale":
            if r["node_rank"] != 1:
                raise _assertion(
                    r,
                    f"Elastic EP scale-up requires one joining TP group at --node-rank 1 (got {r['node_rank']}).",
                )
            if offset <= 0:
                raise _assertion(
                    r,
                    "Elastic EP scale joiners require --elastic-ep-join-rank-offset set to the current "
                    "effective EP size.",
                )
    if offset != 0 and mode != "scale":
        raise _assertion(r, "--elastic-ep-join-rank-offset is only valid with --elastic-ep-join-mode scale.")


def _check_scale_up(r: Resolution) -> None:
    attention_tp = _check_topology(r)
    if attention_tp > 1 and r["moe_dense_tp_size"] != 1:
        raise _assertion(
            r,
            "Elastic EP scale-up with attention TP greater than one requires --moe-dense-tp-size 1 "
            f"(got moe_dense_tp_size={r['moe_dense_tp_size']}).",
        )
    runtime = "Elastic EP runtime scale-up"
    _refuse(
        r,
        (
            r["elastic_ep_scale_timeout"] <= 0,
            "--elastic-ep-scale-timeout must be greater than zero.",
        ),
        (r["tokenizer_worker_num"] != 1, f"{runtime} currently requires --tokenizer-worker-num 1."),
        (r["use_ray"], f"{runtime} does not support --use-ray."),
        (
            r["enable_elastic_expert_backup"],
            f"{runtime} does not support --enable-elastic-expert-backup.",
        ),
    )
    r.set("enable_dp_attention_local_control_broadcast", True, "Joining groups need control on every rank.")
    _check_sizes(r)
    _check_compatibility(r, attention_tp)


def _refuse(r: Resolution, *refusals: tuple[bool, str]) -> None:
    for applies, text in refusals:
        if applies:
            raise _assertion(r, text)


def _check_topology(r: Resolution) -> int:
    """The attention-TP width, after checking that every EP size is whole attention replicas."""
    tp, groups, cp = r["tp_size"], r["attn_dp_size"], r["attn_cp_size"]
    if tp <= 0 or groups <= 0 or cp <= 0 or tp % (groups * cp):
        raise _assertion(r, f"Invalid attention topology: tp_size={tp}, attn_dp_size={groups}, attn_cp_size={cp}.")
    replica = tp // groups
    sizes = [r["max_ep_size"], r["elastic_ep_initial_size"] or tp]
    if r["ep_join_mode"] == "scale":
        sizes.append(r["ep_join_rank_offset"])
    for size in sizes:
        if size <= 0 or size % replica:
            raise _assertion(r, f"EP size {size} must be divisible by attention replica size {replica}.")
    return int(replica // cp)


def _check_sizes(r: Resolution) -> None:
    tp, largest = r["tp_size"], r["max_ep_size"]
    if r["ep_join_mode"] == "scale":
        initial, current = r["elastic_ep_initial_size"], r["ep_join_rank_offset"]
        if initial is None:
            raise _assertion(
                r,
                "Elastic EP scale joiners require --elastic-ep-initial-size set to the primary deployment's "
                "launch-time EP size.",
            )
        _refuse(
            r,
            (
                initial > current,
                f"--elastic-ep-initial-size cannot exceed the current EP size (initial={initial}, current={current}).",
            ),
            (
                current + tp > largest,
                f"Elastic EP joining group exceeds --max-ep-size (join_target={current + tp}, max_ep_size={largest}).",
            ),
            (
                tp == 1 and r["moe_dense_tp_size"] != 1,
                "A single-rank Elastic EP joining group requires --moe-dense-tp-size 1.",
            ),
        )
    else:
        if r["elastic_ep_initial_size"] is None:
            r.set("elastic_ep_initial_size", tp, "A primary deployment starts at its TP size.")
        if r["elastic_ep_initial_size"] != tp:
            raise _assertion(r, f"The primary --elastic-ep-initial-size must equal its launch-time TP size ({tp}).")
    if r["elastic_ep_initial_size"] <= 0:
        raise _assertion(r, "")


def _check_compatibility(r: Resolution, attention_tp: int) -> None:
    scale_up, runtime = "Elastic EP scale-up requires", "Elastic EP runtime scale-up"
    graphs: GraphConfig = r["cuda_graph_config"]
    decode = graphs.decode.backend
    _refuse(
        r,
        (
            r["load_balance_method"] != "round_robin",
            f"{scale_up} --load-balance-method round_robin; load-aware methods require global-rank load "
            f"snapshots after scale (got {r['load_balance_method']}).",
        ),
        (
            r["elastic_ep_backend"] != "mooncake",
            f"{runtime} requires --elastic-ep-backend mooncake (got elastic_ep_backend={r['elastic_ep_backend']}).",
        ),
        (
            attention_tp % r["dcp_size"] != 0,
            f"{scale_up} --dcp-size to divide the fixed attention TP width "
            f"(got dcp_size={r['dcp_size']}, attn_tp_size={attention_tp}).",
        ),
        (
            decode not in (DISABLED, FULL),
            f"{runtime} supports decode CUDA graph backend 'full' or 'disabled' (got {decode!r}).",
        ),
        (
            graphs.prefill.backend != DISABLED,
            f"{runtime} requires prefill CUDA graph to be disabled.",
        ),
    )
    if decode == FULL:
        _check_recapture(r)
    _refuse(
        r,
        (
            not runs_attention_dp(r),
            f"{scale_up} attention DP (--attn-dp-size); without it the TP group is not equivalent to WORLD "
            "and the post-scale collective path is invalid.",
        ),
        (
            not r["enable_dp_lm_head"],
            f"{scale_up} --enable-dp-lm-head so output projection does not depend on the joining group's TP size.",
        ),
        (
            r["attn_cp_size"] != 1,
            f"{scale_up} --attn-cp-size 1 (got attn_cp_size={r['attn_cp_size']}).",
        ),
        (r["moe_dp_size"] != 1, f"{scale_up} --moe-dp-size 1 (got moe_dp_size={r['moe_dp_size']})."),
        (
            r["ep_size"] != r["tp_size"],
            f"{scale_up} ep_size == tp_size (got ep_size={r['ep_size']}, tp_size={r['tp_size']}); physical "
            "EP membership must coincide with the launch-time TP span.",
        ),
        (
            r["moe_a2a_backend"] != "nixl",
            f"{scale_up} --moe-a2a-backend nixl (got moe_a2a_backend={r['moe_a2a_backend']}).",
        ),
    )


def _check_recapture(r: Resolution) -> None:
    recapture = "Elastic EP CUDA graph recapture"
    _refuse(
        r,
        (r["device"] != "cuda", f"{recapture} requires CUDA (got device={r['device']!r})."),
        (
            r["speculative_algorithm"] is not None,
            f"{recapture} does not support speculative decoding.",
        ),
        (r["is_embedding"], f"{recapture} does not support embedding models."),
        (r["dllm_algorithm"] is not None, f"{recapture} does not support diffusion models."),
        (r["encoder_only"], f"{recapture} does not support encoder-only models."),
        (r["forward_hooks"], f"{recapture} does not support forward hooks."),
        (r["enable_pdmux"], f"{recapture} does not support PDMux."),
    )
