"""Whether the all-to-all's fixed buffers hold the largest forward pass of one rank.

Source: SGLang 0.5.23 `arg_groups/moe_hook.py`, `mega_moe_hook.py`, `overrides.py`.
"""

from __future__ import annotations

import math
from typing import Final

from perilune.plan.resolve import machine
from perilune.plan.resolve.graph_config import DISABLED, GraphConfig
from perilune.plan.resolve.moe.checkpoint import names_fp4
from perilune.plan.resolve.speculation.adaptive import CANDIDATE_STEPS
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp

MEGA_MOE_TOKENS: Final = "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK"
FLYDSL_DECODE: Final = "SGLANG_AMD_FLYDSL_MEGA_MOE_DECODE_MTPR"
DEEPEP_V2_TOKENS: Final = "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
FLASHINFER_TOKENS: Final = "SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
FLASHINFER_ROOM: Final = 4096  # tokens the FlashInfer workspace holds at least
NO_FALLBACK: Final = frozenset({"Qwen3NextForCausalLM", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"})
"""MoE blocks that cannot fall back to a plain kernel when MegaMoE's buffer is too small."""


def flashinfer_a2a_budget(r: Resolution) -> None:
    """Hold the FlashInfer workspace against prefill chunks and captured batches."""
    if r["moe_a2a_backend"] != "flashinfer":
        return
    prefills = r["disaggregation_mode"] != "decode"
    if prefills and r["chunked_prefill_size"] <= 0:
        raise r.reject(
            "FlashInfer MoE A2A requires chunked prefill: eager prefill dispatches the whole per-rank extend "
            "batch through a fixed-size workspace, so --chunked-prefill-size must be > 0."
        )
    chunk = _prefill_tokens(r)
    room = r.int_env(FLASHINFER_TOKENS, max(chunk, FLASHINFER_ROOM))
    graphs: GraphConfig = r["cuda_graph_config"]
    needed = chunk if prefills else 0
    if prefills and graphs.prefill.backend != DISABLED:
        needed = max(needed, graphs.prefill.max_bs or 0)
    needed = max(needed, math.prod(_largest_decode_graph(r)))
    if needed > room:
        raise r.reject(
            f"FlashInfer MoE A2A per-rank token budget exceeds its workspace: required={needed} tokens per "
            f"rank (prefill chunk, prefill graph, or decode/verify graph), capacity={room}. Set "
            f"{FLASHINFER_TOKENS}>={needed}, or unset it to size from --chunked-prefill-size, or lower "
            "--chunked-prefill-size / the CUDA graph max batch sizes."
        )


def mega_moe_budget(r: Resolution) -> None:
    """Hold MegaMoE's buffer against the model's largest forward, where nothing can run without it."""
    if r["moe_a2a_backend"] != "megamoe" or r["encoder_only"]:
        return
    if machine.is_hip(r.platform):
        _check_flydsl_decode(r)
        return
    nvfp4 = r["quantization"] in ("modelopt_fp4", "minimax_m3_nvfp4") or names_fp4(r.model)
    if r.model.architecture not in NO_FALLBACK and not nvfp4:
        return
    room = r.int_env(MEGA_MOE_TOKENS, 8192)
    if r["disaggregation_mode"] != "prefill":
        _check_mega_moe_decode(r, room)
    dynamic = r["pp_size"] > 1 and r["enable_dynamic_chunking"]
    if r["disaggregation_mode"] != "decode" and not dynamic:
        _check_mega_moe_prefill(r, room)


def deepep_v2_draft(r: Resolution) -> None:
    """A draft cannot use DeepEP v2, neither by choice nor by following the target."""
    backend = r["speculative_moe_a2a_backend"]
    if backend is None and r["speculative_algorithm"] not in (None, "NGRAM"):
        backend = r["moe_a2a_backend"]
    if backend == "deepep_v2":
        raise r.reject(
            "DeepEP v2 MoE is not validated as a speculative draft backend. Select another "
            "--speculative-moe-a2a-backend."
        )


def deepep_v2_budget(r: Resolution) -> None:
    """Hold DeepEP v2's buffer against prefill chunks and captured decode batches."""
    if r["moe_a2a_backend"] != "deepep_v2":
        return
    room = r.int_env(DEEPEP_V2_TOKENS, 128)
    if r["disaggregation_mode"] != "decode":
        chunk = _prefill_tokens(r) or r["max_prefill_tokens"] or 0
        needed = -(-chunk // max(1, r["tp_size"] // r["attn_dp_size"]))
        if needed > room:
            raise r.reject(
                f"DeepEP v2 per-rank prefill budget exceeds {DEEPEP_V2_TOKENS}: required={needed}, "
                f"capacity={room}. Raise the environment value or lower "
                "--chunked-prefill-size/--max-prefill-tokens."
            )
    requests, each = _largest_decode_graph(r)
    if requests * each > room:
        raise r.reject(
            f"DeepEP v2 per-rank decode CUDA graph exceeds {DEEPEP_V2_TOKENS}: required={requests * each}, "
            f"capacity={room} (requests={requests}, tokens/request={each}). Raise the environment value or "
            "lower --cuda-graph-max-bs-decode."
        )


def _prefill_tokens(r: Resolution) -> int:
    """Tokens of the largest prefill chunk, 0 without chunking; dynamic chunking may exceed its setting."""
    chunk = max(r["chunked_prefill_size"] or 0, 0)
    if chunk and r["enable_dynamic_chunking"] and r["pp_size"] > 1:
        return max(chunk, r["max_prefill_tokens"] or 0, math.ceil(chunk * 1.25))
    return int(chunk)


def _draft_tokens(r: Resolution) -> int:
    """Tokens a request verifies in one step; 1 without speculation."""
    given = r["speculative_num_draft_tokens"]
    if not r["speculative_algorithm"] or given is None:
        return 1
    return max(CANDIDATE_STEPS) + 1 if r["speculative_adaptive"] else int(given)


def _largest_decode_graph(r: Resolution) -> tuple[int, int]:
    """(requests, tokens per request) of the largest captured decode batch on one DP rank."""
    decode = r["cuda_graph_config"].decode
    if r["disaggregation_mode"] == "prefill" or decode.backend == DISABLED:
        return 0, 1
    requests = decode.max_bs or 0
    if r["max_running_requests"] is not None:
        requests = min(requests, max(1, r["max_running_requests"] // r["attn_dp_size"]))
    return requests, _draft_tokens(r)


def _check_flydsl_decode(r: Resolution) -> None:
    """On ROCm, a separate decode buffer must hold every decode or verify step."""
    room = r.int_env(FLYDSL_DECODE, 0)
    separate = r.flag_env("SGLANG_AMD_USE_FLYDSL_MEGA_MOE") and (
        0 < room < r.int_env("SGLANG_AMD_FLYDSL_MEGA_MOE_MTPR", 8192)
    )
    if not separate or r["disaggregation_mode"] == "prefill":
        return
    if r["attn_cp_size"] > 1:
        raise r.reject(
            f"{FLYDSL_DECODE} is not supported with attention context parallelism (--attn-cp-size > 1); set it to 0."
        )
    requests = r["max_running_requests"]
    if requests is None:
        raise r.reject(
            f"{FLYDSL_DECODE} needs --max-running-requests to bound the largest decode / verify forward on one rank."
        )
    if runs_attention_dp(r):
        requests //= r["attn_dp_size"]
    each = 1
    if r["speculative_algorithm"]:
        each = max(r["speculative_num_draft_tokens"] or 1, r["speculative_eagle_topk"] or 1)
    if requests * each > room:
        raise r.reject(
            f"{FLYDSL_DECODE}={room} must cover the largest decode / verify forward on one rank: max running "
            f"requests per DP rank x tokens per request = {requests * each}. Raise it to a power of two of "
            f"at least {requests * each} or lower --max-running-requests."
        )


def _check_mega_moe_decode(r: Resolution, room: int) -> None:
    tp, groups = r["tp_size"], r["attn_dp_size"]
    requests = r["cuda_graph_config"].decode.max_bs or 0
    if r["max_running_requests"] is not None:
        width = tp // groups
        requests = min(requests, -(-(r["max_running_requests"] // groups) // width) * width)
    each = (r["speculative_num_draft_tokens"] or 1) if r["speculative_algorithm"] else 1
    needed = requests * each
    if needed > room:
        raise r.reject(
            f"{r.model.architecture} with MegaMoE requires {MEGA_MOE_TOKENS} to cover the largest decode / "
            "verify forward on one rank. Current values: largest decode graph bucket x tokens per request = "
            f"{needed}, {MEGA_MOE_TOKENS}={room}. Raise the env var to at least {needed} or lower "
            "--cuda-graph-max-bs / --max-running-requests / --speculative-num-draft-tokens."
        )


def _check_mega_moe_prefill(r: Resolution, room: int) -> None:
    name, chunk = r.model.architecture, r["chunked_prefill_size"]
    if chunk is None or chunk <= 0:
        raise r.reject(
            f"{name} with MegaMoE requires chunked prefill to be enabled. Set --chunked-prefill-size to a "
            "positive value; --chunked-prefill-size=-1 is unsafe because MegaMoE's per-rank token "
            "requirement would not have a strict prefill-forward bound."
        )
    tp, cp, groups = r["tp_size"], r["attn_cp_size"], r["attn_dp_size"]
    partition, parts, alignment, share = "none", 1, max(tp // cp, 1), chunk
    if r["enable_prefill_cp"]:
        partition, parts, alignment, share = "attn_cp_size", cp, 1, -(-chunk // cp)
    elif runs_attention_dp(r):
        partition, parts, alignment = "attn_dp_size", groups, max(tp // groups // cp, 1)
        share = chunk // groups
    if share <= 0:
        raise r.reject(
            f"{name} with MegaMoE requires a positive effective per-rank chunked prefill size. Current "
            f"values: chunked_prefill_size={chunk}, token_partition={partition}, "
            f"token_partition_size={parts}."
        )
    needed = -(-share // alignment) * alignment
    if needed > room:
        raise r.reject(
            f"{name} with MegaMoE requires {MEGA_MOE_TOKENS} to cover each rank's effective prefill token "
            f"budget. Current values: chunked_prefill_size={chunk}, token_partition={partition}, "
            f"token_partition_size={parts}, token_alignment={alignment}, required_per_rank={needed}, "
            f"{MEGA_MOE_TOKENS}={room}. Set {MEGA_MOE_TOKENS} to at least {needed}, or lower "
            "--chunked-prefill-size until the effective per-rank budget fits."
        )
