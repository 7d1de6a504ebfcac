"""Sizes that must divide or exclude one another, and what pipeline parallelism does not run with."""

from __future__ import annotations

from perilune.plan.resolve.state import Rejected, Resolution
from perilune.plan.resolve.view import runs_attention_dp


def check_parallelism(r: Resolution) -> None:
    """Check node, pipeline, replica and GPU-numbering constraints."""

    def refusal(text: str) -> Rejected:
        return r.reject(text, error="AssertionError")

    if r["ep_join_mode"] != "scale" and r["tp_size"] * r["pp_size"] % r["nnodes"]:
        raise refusal("tp_size must be divisible by number of nodes")
    micro_batch = r["pp_max_micro_batch_size"]
    if micro_batch is not None and micro_batch < 1:
        raise refusal(
            f"pp_max_micro_batch_size must be a positive integer or None (for auto-compute). Got: {micro_batch}"
        )
    if r["disable_cuda_graph_padding"] and r["enable_torch_compile"]:
        raise refusal(
            "--disable-cuda-graph-padding is incompatible with --enable-torch-compile. "
            "With padding disabled, every distinct batch size gets its own torch.compile + Triton autotune "
            "cycle (O(max_batch_size) compilations) instead of the small fixed set of padded bucket sizes, "
            "causing engine initialisation to stall for many minutes. "
            "Remove --disable-cuda-graph-padding or --enable-torch-compile."
        )
    if r["pp_size"] > 1:
        _check_pipeline(r)
    if r["dp_size"] > 1 and r["nnodes"] != 1:
        raise refusal(
            "multi-node data-parallel replicas are not supported; use attention DP (--attn-dp-size) across nodes"
        )
    if r["base_gpu_id"] < 0:
        raise refusal("base_gpu_id must be non-negative")
    if r["gpu_id_step"] < 1:
        raise refusal("gpu_id_step must be positive")
    if r["moe_dense_tp_size"] not in (None, 1, r["tp_size"]):
        raise refusal("moe_dense_tp_size only supports None, 1, or tp_size currently")


def _check_pipeline(r: Resolution) -> None:
    def refusal(text: str) -> Rejected:
        return r.reject(text, error="AssertionError")

    if not r["disable_overlap_schedule"]:
        raise refusal("Pipeline parallelism is not compatible with overlap schedule")
    algorithm = r["speculative_algorithm"]
    relays_drafts = r.flag_env("SGLANG_ENABLE_PP_SPEC")
    is_prefill = r["disaggregation_mode"] == "prefill"
    if algorithm == "DSPARK":
        if not is_prefill:
            raise refusal("Pipeline parallel DSPARK requires disaggregation-mode=prefill")
        if relays_drafts:
            raise refusal("SGLANG_ENABLE_PP_SPEC does not support DSPARK PD prefill")
    elif algorithm is not None:
        if algorithm.upper() != "EAGLE" or r["enable_multi_layer_eagle"]:
            raise refusal("Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding")
        if relays_drafts:
            _check_draft_relay(r)
        elif not is_prefill:
            raise refusal(
                "PP + speculative decoding (MTP) is only supported on prefill nodes (disaggregation-mode=prefill)"
            )
    if r["min_free_slots_delay"] is not None:
        raise refusal(
            "--min-free-slots-delay is not supported with pipeline parallelism: allocatable slots per "
            "microbatch are bounded by pp-max-micro-batch-size, so the threshold may never be reached"
        )


def _check_draft_relay(r: Resolution) -> None:
    """Draft trees relayed between stages need one batch on every stage, with a fixed width."""
    env = "SGLANG_ENABLE_PP_SPEC is not compatible with"
    if r["disaggregation_mode"] != "null":
        raise r.reject(f"{env} --disaggregation-mode", error="AssertionError")
    if r["speculative_adaptive"]:
        raise r.reject(f"{env} --speculative-adaptive", error="AssertionError")
    if runs_attention_dp(r):
        raise r.reject(f"{env} attention DP (--attn-dp-size)", error="AssertionError")
