"""EAGLE, EAGLE3, NEXTN and STANDALONE: drafts that grow a chain or a tree token by token."""

from __future__ import annotations

from perilune.plan.resolve.machine import is_hip, is_npu
from perilune.plan.resolve.speculation.common import (
    MIXED_CHUNK,
    disable_mixed_chunk,
    float_env,
    limit_running_requests,
    ordered,
)
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import attention_backends, runs_attention_dp

# Targets whose own checkpoint holds the draft layer.
DRAFT_IN_CHECKPOINT = frozenset(
    {
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
    }
)
DRAFT_BESIDE_CHECKPOINT = frozenset({"MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"})
TREE_BY_DEFAULT = frozenset({"Grok1ForCausalLM", "Grok1VForCausalLM", "LlamaForCausalLM"})
CHAIN = (3, 1, 4)  # steps, topk, draft tokens
TREE = (5, 4, 8)
PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")


def eagle(r: Resolution) -> None:
    """Settle steps, width and draft tokens of a step-by-step draft, and what verifies them."""
    algorithm = r["speculative_algorithm"]
    if algorithm == "STANDALONE" and runs_attention_dp(r):
        raise r.reject("Currently standalone speculative decoding does not support dp attention.")
    limit_running_requests(r)
    if algorithm not in MIXED_CHUNK:
        disable_mixed_chunk(r, algorithm)
    _draft_path(r)
    if not r["speculative_adaptive"] and r["speculative_num_steps"] is None:
        _default_shape(r)
    topk = r["speculative_eagle_topk"]
    if "trtllm_mha" in attention_backends(r) and ordered(r, topk) > 1:
        raise r.reject("trtllm_mha backend only supports topk = 1 for speculative decoding.")
    _rejection_sampling(r)
    steps = r["speculative_num_steps"]
    if topk == 1 and r["speculative_num_draft_tokens"] != steps + 1:
        r.set("speculative_num_draft_tokens", steps + 1, "A chain verifies its steps and one bonus token.")
        r.warn("With --speculative-eagle-topk 1 the draft tokens are the steps plus one.")
    backend = r["attention_backend"]
    if ordered(r, topk) > 1 and r["page_size"] > 1 and backend not in PAGED_TREE_BACKENDS:
        raise r.reject(
            f"speculative_eagle_topk > 1 with page_size > 1 is only supported on {PAGED_TREE_BACKENDS}; got "
            f"attention_backend={backend!r}. Use page_size == 1 or one of those backends."
        )


def _draft_path(r: Resolution) -> None:
    architecture = r.model.architecture
    if architecture not in DRAFT_IN_CHECKPOINT:
        return
    if r["speculative_draft_model_path"] is None:
        reason = "The target checkpoint holds the draft layer."
        r.set("speculative_draft_model_path", r["model_path"], reason)
        r.set("speculative_draft_model_revision", r["revision"], reason)
    elif architecture not in DRAFT_BESIDE_CHECKPOINT:
        r.warn("The target checkpoint holds the draft layer; --speculative-draft-model-path is not needed.")


def _default_shape(r: Resolution) -> None:
    if r["speculative_eagle_topk"] is not None or r["speculative_num_draft_tokens"] is not None:
        raise r.reject("", error="AssertionError")
    tree = r["speculative_algorithm"] != "STANDALONE" and r.model.architecture in TREE_BY_DEFAULT
    steps, topk, tokens = TREE if tree else CHAIN
    reason = f"Default draft shape for {r.model.architecture}."
    r.set("speculative_num_steps", steps, reason)
    r.set("speculative_eagle_topk", topk, reason)
    r.set("speculative_num_draft_tokens", tokens, reason)


def _accepts_exactly(r: Resolution) -> bool:
    return bool(r["speculative_accept_threshold_single"] == 1.0 and r["speculative_accept_threshold_acc"] == 1.0)


def _rejection_sampling(r: Resolution) -> None:
    """ROCm has no sampling verify kernel, so EAGLE chains default to rejection sampling there."""
    algorithm, topk = r["speculative_algorithm"], r["speculative_eagle_topk"]
    if (
        is_hip(r.platform)
        and algorithm == "EAGLE"
        and topk == 1
        and r["speculative_token_map"] is None
        and _accepts_exactly(r)
        and not r["enable_deterministic_inference"]
        and float_env(r, "SGLANG_SIMULATE_ACC_LEN", -1.0) <= 0
    ):
        r.set(
            "speculative_use_rejection_sampling",
            True,
            "ROCm samples EAGLE drafts only through rejection sampling.",
        )
    if not r["speculative_use_rejection_sampling"]:
        return
    if algorithm not in ("EAGLE", "EAGLE3"):
        raise r.reject(
            "--speculative-use-rejection-sampling is only supported for EAGLE / EAGLE3 / NEXTN, not "
            f"speculative_algorithm={algorithm}.",
            error="NotImplementedError",
        )
    if topk != 1:
        raise r.reject("--speculative-use-rejection-sampling requires --speculative-eagle-topk=1.")
    if r["enable_deterministic_inference"] and is_npu(r.platform):
        raise r.reject(
            "Deterministic rejection sampling is currently supported only on CUDA-compatible devices because "
            "draft proposal sampling uses a Triton hash kernel."
        )
    if not _accepts_exactly(r):
        raise r.reject(
            "--speculative-use-rejection-sampling is incompatible with --speculative-accept-threshold-single "
            "/ --speculative-accept-threshold-acc; rejection sampling ignores the accept thresholds."
        )
