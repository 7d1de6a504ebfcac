"""Speculative decoding: which algorithm, how many draft tokens, and what it rules out."""

from __future__ import annotations

from perilune.plan.resolve.speculation.algorithm import speculative_decoding
from perilune.plan.resolve.speculation.auxiliary import aux_hidden_state_capture
from perilune.plan.resolve.speculation.diffusion import diffusion_llm

__all__ = ["aux_hidden_state_capture", "diffusion_llm", "speculative_decoding"]
