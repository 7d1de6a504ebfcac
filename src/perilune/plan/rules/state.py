"""The pool of recurrent states: strategies that do nothing, or fail where the arguments are not checked."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import remove
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

STRATEGY = "--mamba-radix-cache-strategy"


@rule("state-strategy-inert", "rewrite")
def inert_strategy(s: Subject) -> Iterator[Says]:
    """Without a radix cache, as on a PD decode server, a strategy for its states does nothing."""
    if not s.accepted or not s.wrote(STRATEGY) or not s["disable_radix_cache"]:
        return
    why = "A PD decode server keeps no prefix cache" if s.role == "decode" else "The radix cache is off"
    yield Says(
        f"{why}, so {STRATEGY} {s.value(STRATEGY)} does nothing: a request holds one state slot.",
        flags=(STRATEGY,),
        edits=remove(STRATEGY),
    )


@rule("state-skip-lock", "advice", PAGE)
def skip_lock(s: Subject) -> Iterator[Says]:
    """SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK saves a slot per request and is experimental."""
    if s.on_env("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"):
        yield Says(
            "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1 is experimental, under validation.",
            flags=("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK",),
        )


@rule("pd-decode-radix-cost", "advice", PAGE)
def decode_radix_cost(s: Subject) -> Iterator[Says]:
    """A prefix cache on a PD decode server costs the slots per request of a unified server."""
    inputs = s.ledger.inputs
    if not s.accepted or not s.wrote("--disaggregation-decode-enable-radix-cache") or inputs is None:
        return
    if inputs.hybrid and inputs.slots_per_request > 1:
        yield Says(
            f"With a prefix cache on decode a request holds {inputs.slots_per_request} state slots, not 1.",
            flags=("--disaggregation-decode-enable-radix-cache",),
        )


RULES = (inert_strategy, skip_lock, decode_radix_cost)
