"""Traffic for a rehearsal: recorded traces of ten formats, and described workloads."""

from __future__ import annotations

from perilune.rehearse.traces.formats import FORMATS, sniff
from perilune.rehearse.traces.generate import (
    Conversation,
    Lengths,
    bursty,
    closed_loop,
    num_prompts,
    poisson,
    sessions,
)
from perilune.rehearse.traces.images import image_tokens
from perilune.rehearse.traces.read import traffic
from perilune.rehearse.traces.reuse import Reuse, reuse

__all__ = [
    "FORMATS",
    "Conversation",
    "Lengths",
    "Reuse",
    "bursty",
    "closed_loop",
    "image_tokens",
    "num_prompts",
    "poisson",
    "reuse",
    "sessions",
    "sniff",
    "traffic",
]
