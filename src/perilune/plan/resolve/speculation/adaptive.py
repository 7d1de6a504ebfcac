"""Adaptive speculation: the number of draft steps follows the acceptance seen at run time."""

from __future__ import annotations

from perilune.plan.resolve.speculation.common import not_modelled
from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp

CANDIDATE_STEPS = (0, 1, 3, 5, 7)  # the union of the built-in batch-size tiers


def adaptive_steps(r: Resolution) -> None:
    """Pick the starting steps from the candidates, or fall back to a fixed count where unsupported."""
    reason = _unsupported(r)
    if reason is not None:
        r.set("speculative_adaptive", False, f"Adaptive speculation does not run with {reason}.")
        r.warn(f"Adaptive speculation is disabled because of {reason}; the draft length stays fixed.")
        return
    if r["speculative_adaptive_config"] is not None:
        raise not_modelled(
            "--speculative-adaptive-config", "Leave it out: the built-in candidate steps are 0, 1, 3, 5, 7."
        )
    if r["speculative_eagle_topk"] is None:
        r.set("speculative_eagle_topk", 1, "Adaptive speculation drafts one chain.")
    if r["speculative_num_steps"] is None:
        middle = CANDIDATE_STEPS[len(CANDIDATE_STEPS) // 2]
        r.set("speculative_num_steps", middle, "Adaptive speculation starts at the middle candidate.")
    steps = r["speculative_num_steps"]
    if steps not in CANDIDATE_STEPS:
        raise r.reject(
            f"--speculative-num-steps={steps} is not in the adaptive config candidate_steps "
            f"{list(CANDIDATE_STEPS)}. Pass one of those values."
        )
    r.set("speculative_num_draft_tokens", steps + 1, "A chain verifies its steps and one bonus token.")


def _unsupported(r: Resolution) -> str | None:
    algorithm, topk = r["speculative_algorithm"], r["speculative_eagle_topk"]
    if algorithm not in ("EAGLE", "EAGLE3"):
        return f"--speculative-algorithm {algorithm}"
    if topk is not None and topk != 1:
        return f"--speculative-eagle-topk {topk}"
    if runs_attention_dp(r):
        return "attention data parallelism"
    if r["enable_multi_layer_eagle"]:
        return "multi-layer EAGLE"
    if r["enable_two_batch_overlap"]:
        return "two-batch overlap"
    if r["enable_pdmux"]:
        return "PD multiplexing"
    return None
