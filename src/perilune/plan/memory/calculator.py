"""The page's ratio calculator read from a resolved plan, beside the split its memory really has."""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.compose.ratio import DRAFT_KV_BYTES, memory_ratio
from perilune.plan.memory.ledger import Ledger
from perilune.plan.memory.split import Demand, Ratios, most_requests, split_for


@dataclass(frozen=True, slots=True)
class CalculatorReading:
    """What `--mamba-full-memory-ratio` would be for requests of `tokens`.

    `page` is the cookbook page's rule of thumb, None where it has no value. `best` are the ratios that admit
    `most`, the largest number of such requests that any split of this plan's memory admits.
    """

    tokens: int
    present: float
    page: float | None
    most: int
    best: Ratios | None


def read_calculator(ledger: Ledger, tokens: int) -> CalculatorReading | None:
    """The reading for requests of `tokens` (input and output); None for a plan without state or memory."""
    terms, inputs = ledger.terms, ledger.inputs
    if terms is None or inputs is None or terms.state is None or tokens < 1:
        return None
    most = most_requests(inputs, tokens) * inputs.attn_dp
    return CalculatorReading(
        tokens=tokens,
        present=inputs.ratio,
        page=memory_ratio(
            slots=inputs.slots_per_request,
            verify_states=inputs.draft_tokens if inputs.reserves_steps else 0,
            state_bytes=terms.state.slot,
            length=tokens,
            mla_kv_bytes=ledger.geometry.kv_bytes_per_token(terms.kv_bytes, attn_tp=terms.attn_tp),
            dcp=inputs.dcp,
            draft_kv_bytes=DRAFT_KV_BYTES if inputs.draft_tokens else 0,
        ),
        most=most,
        best=split_for(inputs, Demand(most, tokens)).ratios if most else None,
    )
