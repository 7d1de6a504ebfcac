"""DFLASH and DSPARK: drafts that propose a whole block of tokens per step."""

from __future__ import annotations

from perilune.plan.resolve.machine import is_hip, is_npu, is_sm100
from perilune.plan.resolve.speculation.common import (
    COORDINATION_ENV,
    force_one,
    limit_running_requests,
    ragged_verify_mode,
)
from perilune.plan.resolve.speculation.draft import (
    attends_locally_or_causally,
    block_size,
    draft_config,
    gamma,
    is_bundled,
)
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends, runs_attention_dp

DFLASH_BLOCK = 16
DSPARK_GAMMA = 7
DRAFT_BACKENDS = frozenset({"flashinfer", "fa3", "fa4", "triton", "ascend", "trtllm_mha", "intel_xpu"})
DSPARK_DP_A2A = frozenset({"none", "megamoe", "mori"})


def dflash(r: Resolution) -> None:
    """DFLASH verifies exactly one block; its draft needs a dense attention backend of its own."""
    _dflash_attention_dp(r)
    if r["pp_size"] != 1:
        raise r.reject("Currently DFLASH speculative decoding only supports pp_size == 1.")
    if r["speculative_draft_model_path"] is None:
        raise r.reject("DFLASH speculative decoding requires setting --speculative-draft-model-path.")
    force_one(r, "DFLASH", "speculative_num_steps", "speculative_eagle_topk")
    _dflash_block(r)
    window, tokens = r["speculative_draft_window_size"], r["speculative_num_draft_tokens"]
    if window is not None and window < tokens:
        raise r.reject(
            "--speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size). "
            f"window_size={window}, block_size={tokens}."
        )
    r.set(
        "speculative_draft_attention_backend",
        _dflash_draft_backend(r),
        "The DFLASH draft follows the prefill attention backend where it can.",
    )
    limit_running_requests(r)


def _dflash_attention_dp(r: Resolution) -> None:
    if not runs_attention_dp(r) or is_npu(r.platform):
        return
    if not r["enable_dp_lm_head"]:
        raise r.reject("DFLASH with dp attention requires --enable-dp-lm-head.")
    if r["attn_cp_size"] != 1:
        raise r.reject("DFLASH with dp attention does not support context parallel.")
    if r.flag_env(COORDINATION_ENV):
        raise r.reject(f"DFLASH with dp attention requires {COORDINATION_ENV}=0.")


def _dflash_block(r: Resolution) -> None:
    asked, tokens = r["speculative_dflash_block_size"], r["speculative_num_draft_tokens"]
    if asked is not None:
        if asked <= 0:
            raise r.reject(f"DFLASH requires --speculative-dflash-block-size to be positive, got {asked}.")
        if tokens is not None and tokens != asked:
            raise r.reject(
                "Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they "
                f"differ. For DFLASH they must match. speculative_num_draft_tokens={tokens}, "
                f"speculative_dflash_block_size={asked}."
            )
        r.set("speculative_num_draft_tokens", asked, "DFLASH verifies one block.")
    elif tokens is None:
        inferred = block_size(draft_config(r))
        if inferred is None:
            inferred = DFLASH_BLOCK
            r.warn("The draft's config names no block size; DFLASH verifies 16 tokens.")
        r.set("speculative_num_draft_tokens", inferred, "DFLASH verifies one block of the draft.")


def _dflash_draft_backend(r: Resolution) -> str:
    """The draft's attention backend: the user's, else the target's prefill one, else one that works."""
    fallback = "triton" if is_hip(r.platform) else "flashinfer"
    backend = r["speculative_draft_attention_backend"]
    if backend is None:
        backend, _ = attention_backends(r)
    if backend is None:
        return fallback
    if backend not in DRAFT_BACKENDS:
        r.warn(f"The DFLASH draft cannot use the {backend} attention backend; it uses {fallback}.")
        return fallback
    if backend == "trtllm_mha" and not attends_locally_or_causally(draft_config(r)):
        if is_sm100(r.platform):
            fallback = "fa4"
        r.warn(f"The DFLASH draft is neither sliding-window nor causal; it uses {fallback}.")
        return fallback
    return str(backend)


def dspark(r: Resolution) -> None:
    """DSPARK verifies gamma + 1 tokens, gamma being the draft's block size."""
    if r["attn_dp_size"] > 1:
        _dspark_attention_dp(r)
    if r["pp_size"] != 1 and r["disaggregation_mode"] != "prefill":
        raise r.reject(
            "DSpark pipeline parallelism requires PD prefill; decode and non-disaggregated serving require "
            "pp_size == 1."
        )
    _dspark_draft_path(r)
    force_one(r, "DSpark", "speculative_num_steps", "speculative_eagle_topk")
    _dspark_window(r)
    limit_running_requests(r)
    _dspark_scheduler_options(r)


def _dspark_attention_dp(r: Resolution) -> None:
    a2a, draft_a2a = r["moe_a2a_backend"], r["speculative_moe_a2a_backend"]
    on_npu = is_npu(r.platform)
    if not r["enable_dp_lm_head"]:
        raise r.reject("DSpark with dp attention requires --enable-dp-lm-head.")
    if not on_npu:
        if a2a not in DSPARK_DP_A2A:
            raise r.reject(
                "DSpark with dp attention supports moe_a2a_backend 'none' (built-in TP MoE), 'megamoe', or "
                f"'mori', got {a2a!r}."
            )
        needs_static = a2a != "none" or r.flag_env(COORDINATION_ENV)
        if needs_static and ragged_verify_mode(r) != "static":
            raise r.reject("DSpark DP MoE or prefill coordination requires SGLANG_RAGGED_VERIFY_MODE=static.")
    if r["attn_cp_size"] > 1:
        raise r.reject(
            f"DSpark with dp attention does not support context parallel (attn_cp_size={r['attn_cp_size']})."
        )
    if not on_npu and draft_a2a is not None and draft_a2a != a2a:
        raise r.reject(
            "DSpark ignores --speculative-moe-a2a-backend; with dp attention it must match the target "
            f"moe_a2a_backend={a2a!r} (got {draft_a2a!r})."
        )


def _dspark_draft_path(r: Resolution) -> None:
    if r["speculative_draft_model_path"] is not None:
        return
    if not is_bundled(r.model):
        raise r.reject("DSpark dense speculative decoding requires setting --speculative-draft-model-path.")
    reason = "The target checkpoint carries its own DSPARK draft."
    r.set("speculative_draft_model_path", r["model_path"], reason)
    r.set("speculative_draft_model_revision", r["revision"], reason)


def _dspark_window(r: Resolution) -> None:
    asked, tokens = r["speculative_dspark_block_size"], r["speculative_num_draft_tokens"]
    if asked is not None and asked <= 0:
        raise r.reject(f"DSpark requires --speculative-dspark-block-size to be positive, got {asked}.")
    size = gamma(draft_config(r)) if asked is None else asked
    if size is None and tokens is None:
        size = DSPARK_GAMMA
        r.warn("The draft's config names no block size; DSpark proposes 7 tokens.")
    if size is not None:
        if tokens is not None and tokens != size + 1:
            raise r.reject(
                f"DSpark speculative_num_draft_tokens must equal gamma + 1 (= {size + 1} for gamma={size}), "
                f"but got speculative_num_draft_tokens={tokens}."
            )
        tokens = size + 1
        r.set("speculative_num_draft_tokens", tokens, "DSPARK verifies its block and one bonus token.")
    if tokens < 2:
        raise r.reject(f"DSpark speculative_num_draft_tokens must be >= 2 (= gamma + 1), got {tokens}.")


def _dspark_scheduler_options(r: Resolution) -> None:
    mode = ragged_verify_mode(r)
    if r["speculative_dspark_align_verify_tokens_to_graph_tier"] and mode != "compact":
        r.warn(
            "--speculative-dspark-align-verify-tokens-to-graph-tier does nothing unless "
            "SGLANG_RAGGED_VERIFY_MODE=compact."
        )
    if r["speculative_dspark_sps_table_path"] and mode == "static":
        r.warn("--speculative-dspark-sps-table-path does nothing while SGLANG_RAGGED_VERIFY_MODE is static.")
