"""What one GPU really allocates for its pools, including what no budget covers.

The engine sizes its pools with one formula and builds them with another. The difference (spare slots of a
PD decode server, conv windows under ReplaySSM, request tables, padding) comes out of the memory that was
meant for graphs and activations. All bytes are per GPU of one PP stage.
Source: SGLang 0.5.23 `mem_cache/memory_pool.py`, `mem_cache/mamba_checkpoint_pool.py`,
`mem_cache/allocation_sizing.py`, `disaggregation/decode.py`.
"""

from __future__ import annotations

import msgspec

from perilune.plan.memory.pools import Sizing
from perilune.plan.resolve.state import Rejected


class LayerState(msgspec.Struct, frozen=True, kw_only=True):
    """What one linear layer keeps for one slot at the plan's attention TP, in bytes."""

    conv_bytes: int
    conv_window: int  # steps in the conv window: kernel - 1
    ssm_bytes: int
    checkpoint_bytes: int = 0  # the same state quantised to int8, with scales and conv window
    spec_ring_bytes: int = 0  # the ring of --enable-linear-replayssm-spec
    decode_ring_bytes: int = 0  # the ring of --enable-linear-replayssm


class Stage(msgspec.Struct, frozen=True):
    """One PP stage: its layers, and the bytes one token row takes in its own KV pool and in the draft's."""

    linear_layers: int
    kv_cell: int
    draft_cell: int = 0


class AllocationInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything pool building reads beyond the sizing itself."""

    page: int
    row_tokens: int  # width of one request's row in req_to_token
    draft_rows_per_row: int = 1  # the replicated draft pool spans rows x DCP
    draft_rows_charged: int = 1  # how many of them the token budget pays for
    layer: LayerState | None = None
    spec_tokens: int = 0  # draft tokens with buffers of their own; 0 where none are built
    step_states: bool = False  # one state per draft token (no ReplaySSM)
    window_shared: bool = False  # overlapping conv windows share columns (CUDA chains of non-KDA models)
    window_grows: bool = False  # the pool's own conv window holds the draft tokens (NPU)
    spec_ring: bool = False
    spec_ring_per_request: bool = False
    ring_length: int = 16
    checks_ring: bool = False
    decode_ring: bool = False
    decode_pool: bool = False  # PD decode (or a role-switching) server: rows for requests in transfer
    extra_rows: int = 0
    tracking_slots: int = 0
    checkpoint: bool = False
    checkpoint_slots: int | None = None  # None: twice the state slots


class Allocated(msgspec.Struct, frozen=True, kw_only=True):
    """The pools of one stage, in bytes, and their row counts."""

    slots: int
    verified_rows: int
    request_rows: int
    kv_rows: int
    conv: int
    ssm: int
    step_ssm: int
    step_conv: int
    ring: int
    checkpoint: int
    req_to_token: int
    kv: int
    draft_kv: int

    @property
    def state(self) -> int:
        """Everything kept per state slot or per verified request."""
        return self.conv + self.ssm + self.step_ssm + self.step_conv + self.ring + self.checkpoint

    @property
    def total(self) -> int:
        """All pools of the stage."""
        return self.state + self.req_to_token + self.kv + self.draft_kv


def ring_error(i: AllocationInputs) -> Rejected | None:
    """The error a verification ring of this length raises while the pool is built, or None."""
    if not (i.spec_ring and i.checks_ring):
        return None
    length = i.ring_length
    if length & (length - 1):
        return Rejected(f"ValueError: spec-verify ring length must be a power of two, got {length}", stage="pools")
    if i.spec_tokens and length < 2 * i.spec_tokens:
        return Rejected(
            f"ValueError: spec-verify ring too small: {length} < 2 * {i.spec_tokens} (early-flush margin)",
            stage="pools",
        )
    return None


def slots_built(i: AllocationInputs, slots: int, requests: int) -> int:
    """State slots really built, without the padding slot: a PD decode server raises them to its need."""
    if not i.decode_pool:
        return slots
    return max(slots, (requests + i.extra_rows) * (1 + i.tracking_slots))


def allocate(i: AllocationInputs, stage: Stage, sizing: Sizing) -> Allocated:
    """The pools one GPU of `stage` builds for `sizing`."""
    rows = sizing.requests + (i.extra_rows if i.decode_pool else 0)
    kv_rows = sizing.tokens + i.page
    built, conv, ssm, step_ssm, step_conv, ring, checkpoint = 0, 0, 0, 0, 0, 0, 0
    if i.layer is not None and sizing.slots is not None:
        layer, n = i.layer, stage.linear_layers
        built = slots_built(i, sizing.slots, sizing.requests)
        conv = n * (built + 1) * _own_window(i, layer)
        ssm = n * (built + 1) * layer.ssm_bytes
        if i.spec_tokens:
            step_conv = n * (rows + 1) * _step_windows(i, layer)
            step_ssm = n * (rows + 1) * i.spec_tokens * layer.ssm_bytes if i.step_states else 0
        if i.spec_ring:
            ring = n * ((rows if i.spec_ring_per_request else built) + 1) * layer.spec_ring_bytes
        elif i.decode_ring:
            ring = n * (built + 1) * layer.decode_ring_bytes
        if i.checkpoint:
            checkpoint = n * ((i.checkpoint_slots or 2 * built) + 1) * layer.checkpoint_bytes
    return Allocated(
        slots=built,
        verified_rows=rows,
        request_rows=rows + 1,
        kv_rows=kv_rows,
        conv=conv,
        ssm=ssm,
        step_ssm=step_ssm,
        step_conv=step_conv,
        ring=ring,
        checkpoint=checkpoint,
        req_to_token=(rows + 1) * i.row_tokens * 4,
        kv=kv_rows * stage.kv_cell,
        draft_kv=kv_rows * i.draft_rows_per_row * stage.draft_cell,
    )


def _own_window(i: AllocationInputs, layer: LayerState) -> int:
    if i.window_grows and i.spec_tokens:
        return layer.conv_bytes * (layer.conv_window + i.spec_tokens - 1) // layer.conv_window
    return layer.conv_bytes


def _step_windows(i: AllocationInputs, layer: LayerState) -> int:
    if i.window_shared:
        return layer.conv_bytes * (layer.conv_window + i.spec_tokens - 1) // layer.conv_window
    return layer.conv_bytes * i.spec_tokens


def row_tokens(
    *,
    context: int,
    page: int,
    spec_tokens: int,
    algorithm: str | None,
    steps: int | None,
    topk: int | None,
) -> int:
    """Tokens one req_to_token row holds: the context and what a decode step may allocate beyond it.

    `page` is the allocator's: the pool's page times DCP.
    """
    extra = 4 + spec_tokens
    uno = algorithm == "UNO"
    if algorithm is not None and (page > 1 or uno):
        extra = max(extra, 2 * _step_tokens(page, spec_tokens, algorithm, steps or 1, topk or 1) + page - 1)
    return context + extra


def _step_tokens(page: int, spec_tokens: int, algorithm: str, steps: int, topk: int) -> int:
    if algorithm == "UNO":
        return spec_tokens + 1
    if page == 1 or topk == 1 or algorithm == "NGRAM":
        return max(steps * topk, spec_tokens)
    pages = (page - 1 + steps + page - 1) // page
    return max(pages * page * topk, spec_tokens)
