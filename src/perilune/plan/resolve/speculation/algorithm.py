"""The speculative-decoding step: which algorithm is meant, what it needs, and who fills in the rest."""

from __future__ import annotations

from collections.abc import Callable

from perilune.plan.resolve.machine import is_npu
from perilune.plan.resolve.speculation.adaptive import adaptive_steps
from perilune.plan.resolve.speculation.block import dflash, dspark
from perilune.plan.resolve.speculation.common import (
    COORDINATION_ENV,
    disable_mixed_chunk,
    limit_running_requests,
    ragged_verify_mode,
)
from perilune.plan.resolve.speculation.draft import is_gemma4_assistant
from perilune.plan.resolve.speculation.eagle import eagle
from perilune.plan.resolve.speculation.ngram import ngram
from perilune.plan.resolve.speculation.uno import uno
from perilune.plan.resolve.state import Resolution

PD_DECODE_RADIX = frozenset({None, "DSPARK", "EAGLE", "EAGLE3"})
BLOCK_VERIFICATION = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})
COORDINATED = frozenset({"EAGLE", "EAGLE3", "DSPARK"})
WINDOWED = frozenset({"EAGLE", "EAGLE3", "DFLASH"})


def speculative_decoding(r: Resolution) -> None:
    """Settle the speculative algorithm and its draft-token counts, or refuse the combination."""
    if r["speculative_draft_model_path"] is not None and r["speculative_draft_model_revision"] is None:
        r.set("speculative_draft_model_revision", "main", "The draft is read at its main revision.")
    _draft_moe_runner(r)
    _canonical_name(r)
    _pd_decode_radix(r)
    _block_verification(r)
    _draft_window(r)
    algorithm = r["speculative_algorithm"]
    if algorithm is not None and algorithm not in HANDLERS:
        raise r.reject(f"Unknown speculative algorithm name: {algorithm}")
    if r.flag_env(COORDINATION_ENV) and (algorithm not in COORDINATED or r["enable_multi_layer_eagle"]):
        raise r.reject("DP spec/prefill coordination requires single-layer EAGLE, EAGLE3 or DSPARK")
    if r["speculative_adaptive"]:
        adaptive_steps(r)
    if algorithm is not None:
        ragged_verify_mode(r)
        HANDLERS[algorithm](r)


def _draft_moe_runner(r: Resolution) -> None:
    """Draft MoE layers run like the target's, except for runners that need prepared or adapted weights."""
    if r["speculative_moe_runner_backend"] is not None:
        return
    target = r["moe_runner_backend"]
    if target == "flashinfer_megamoe":
        target = "flashinfer_trtllm"
    elif target.startswith("lora_"):
        target = "auto"
    r.set("speculative_moe_runner_backend", target, "The draft follows the target's MoE runner.")


def _canonical_name(r: Resolution) -> None:
    """Upper-case the name and resolve NEXTN, which is EAGLE, or Gemma 4's own algorithm."""
    given = r["speculative_algorithm"]
    name = given.upper() if given is not None else None
    if is_gemma4_assistant(r):
        if name == "EAGLE3":
            raise r.reject(
                "Gemma4AssistantForCausalLM draft requires --speculative-algorithm NEXTN or EAGLE; EAGLE3 is "
                "not supported for this draft architecture."
            )
        if name in ("NEXTN", "EAGLE"):
            name = "FROZEN_KV_MTP"
    elif name == "NEXTN":
        name = "EAGLE"
    r.set("speculative_algorithm", name, f"{given} runs as {name}.")


def _pd_decode_radix(r: Resolution) -> None:
    algorithm = r["speculative_algorithm"]
    radix = r["disaggregation_mode"] == "decode" and r["disaggregation_decode_enable_radix_cache"]
    if radix and algorithm not in PD_DECODE_RADIX:
        raise r.reject(
            "--disaggregation-decode-enable-radix-cache is incompatible with speculative decoding "
            f"(--speculative-algorithm {algorithm})"
        )


def _block_verification(r: Resolution) -> None:
    if not r["speculative_use_block_verification"]:
        return
    algorithm = r["speculative_algorithm"]
    if algorithm not in BLOCK_VERIFICATION:
        raise r.reject("--speculative-use-block-verification only supports EAGLE / EAGLE3 / NEXTN / DFLASH / DSPARK.")
    if is_npu(r.platform):
        raise r.reject("--speculative-use-block-verification only supports CUDA or ROCm.")
    if algorithm in ("EAGLE", "EAGLE3"):
        r.set(
            "speculative_use_rejection_sampling",
            True,
            "Block verification needs sampled proposals, which rejection sampling provides.",
        )


def _draft_window(r: Resolution) -> None:
    window, sink = r["speculative_draft_window_size"], r["speculative_draft_sink_size"]
    if window is not None:
        if window <= 0:
            raise r.reject(f"--speculative-draft-window-size must be positive, got {window}.")
        if r["speculative_algorithm"] not in WINDOWED:
            r.warn(f"--speculative-draft-window-size has no effect with {r['speculative_algorithm']}.")
    if sink is None:
        return
    if sink < 0:
        raise r.reject(f"--speculative-draft-sink-size must be non-negative, got {sink}.")
    if window is None:
        raise r.reject("--speculative-draft-sink-size requires --speculative-draft-window-size.")


def _frozen_kv_mtp(r: Resolution) -> None:
    limit_running_requests(r)
    disable_mixed_chunk(r, "Frozen-KV MTP")


def _nothing(r: Resolution) -> None:
    """The algorithm called NONE: speculation stays off."""


HANDLERS: dict[str, Callable[[Resolution], None]] = {
    "DFLASH": dflash,
    "DSPARK": dspark,
    "EAGLE": eagle,
    "EAGLE3": eagle,
    "FROZEN_KV_MTP": _frozen_kv_mtp,
    "NGRAM": ngram,
    "NONE": _nothing,
    "STANDALONE": eagle,
    "UNO": uno,
}
