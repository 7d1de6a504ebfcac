"""Expert placement, replica choice and their metrics. Source: SGLang 0.5.23 `arg_groups/parallel_hook.py`."""

from __future__ import annotations

from typing import Final

from perilune.plan.resolve.state import Resolution

SHARED_EXPERTS_BACKENDS: Final = frozenset({"deepep", "megamoe", "mooncake", "ascend_fuseep", "mori"})
RECORDER_ITERATIONS: Final = 1000


def shared_experts_tp(r: Resolution) -> None:
    """Shared experts may have a tensor-parallel width of their own on Kimi-K3 with an expert all-to-all."""
    size = r["shared_experts_tp_size"]
    if size is None:
        return
    attention_tp = r["tp_size"] // r["attn_dp_size"] // r["attn_cp_size"]
    if size < 1 or attention_tp % size != 0:
        raise r.reject(
            f"--shared-experts-tp-size ({size}) must be a positive divisor of attention TP size ({attention_tp})."
        )
    if r.model.architecture != "KimiK3ForConditionalGeneration":
        raise r.reject("--shared-experts-tp-size is only supported for Kimi-K3.")
    if r["moe_a2a_backend"] not in SHARED_EXPERTS_BACKENDS:
        raise r.reject(
            "--shared-experts-tp-size requires an expert-parallel all-to-all backend (deepep, megamoe, "
            "mooncake, ascend_fuseep or mori)."
        )


def eplb_and_dispatch(r: Resolution) -> None:
    """Settle how a token picks among the replicas of an expert."""
    if r["enable_eplb"] and r["expert_distribution_recorder_mode"] is None:
        r.set("expert_distribution_recorder_mode", "stat", "EPLB balances by recorded statistics.")
    every_rank_agrees = r["moe_a2a_backend"] == "none"
    if (r["enable_eplb"] or r["init_expert_location"] != "trivial") and r["ep_dispatch_algorithm"] is None:
        r.set(
            "ep_dispatch_algorithm",
            "dynamic" if every_rank_agrees else "static",
            "Without an all-to-all every rank must pick the same replica."
            if every_rank_agrees
            else "Default with an expert all-to-all.",
        )
    algorithm = r["ep_dispatch_algorithm"]
    if every_rank_agrees and algorithm in ("static", "lp"):
        raise r.reject(
            f"--ep-dispatch-algorithm {algorithm} picks a different physical replica per rank, which only "
            "holds up when an a2a backend routes each token to a single rank. Use --ep-dispatch-algorithm "
            "dynamic with --moe-a2a-backend none."
        )
    if r["enable_eplb"] and r["ep_join_mode"] != "scale" and r["ep_size"] <= 1:
        raise r.reject("", error="AssertionError")


def expert_distribution_metrics(r: Resolution) -> None:
    """Settle what is recorded about expert load, and for how many iterations."""
    if r["expert_balancedness_report_mode"] != "off" and r["expert_distribution_recorder_mode"] is None:
        r.set("expert_distribution_recorder_mode", "stat", "The balancedness report needs statistics.")
    if r["expert_distribution_recorder_buffer_size"] is None:
        iterations = r["eplb_rebalance_num_iterations"]
        if iterations is not None:
            reason = "One rebalancing interval."
            r.set("expert_distribution_recorder_buffer_size", iterations, reason)
        elif r["expert_distribution_recorder_mode"] is not None:
            r.set("expert_distribution_recorder_buffer_size", RECORDER_ITERATIONS, "Default.")
