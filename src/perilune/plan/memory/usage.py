"""The pools of one PP stage taken apart: what the budget paid for, and what nobody budgets. Bytes per GPU."""

from __future__ import annotations

from dataclasses import dataclass, fields

from perilune.plan.memory.allocated import Allocated, AllocationInputs, Stage
from perilune.plan.memory.pools import PoolInputs, Sizing


@dataclass(frozen=True, slots=True)
class Budgeted:
    """What sizing had in mind."""

    slots: int  # K state slots
    padding: int  # the slot that padded batch rows write to
    ring: int
    steps: int  # a state and a conv window per draft token and verified request
    kv: int
    draft_kv: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True, slots=True)
class Unbudgeted:
    """What is built besides, out of the memory meant for graphs and activations."""

    spare_slots: int  # a PD decode server's slots for requests in transfer
    verify: int  # conv windows under ReplaySSM; states of rows beyond the budget
    windows: int  # an NPU's longer conv windows
    decode_ring: int  # --enable-linear-replayssm
    checkpoint: int  # --enable-int8-mamba-checkpoint
    req_to_token: int
    padding_page: int  # one page of KV rows that padding writes to
    draft_rows: int  # rows of a draft pool that no row of the budget paid for
    symmetric: int  # --enable-symm-mem

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, f.name) for f in fields(self))


def budgeted(i: PoolInputs, built: AllocationInputs, stage: Stage, sizing: Sizing, found: Allocated) -> Budgeted:
    """The part of a stage's pools that sizing charged."""
    charged_rows = built.draft_rows_charged
    kv, draft = sizing.tokens * stage.kv_cell, sizing.tokens * charged_rows * stage.draft_cell
    if built.layer is None or sizing.state is None:
        return Budgeted(0, 0, 0, 0, kv, draft)
    slot = stage.linear_layers * (built.layer.conv_bytes + built.layer.ssm_bytes)
    ring = 0
    if built.spec_ring:
        charged = i.request_ring_bytes * ((i.asked_per_worker or 1) + 1)
        per_slot = stage.linear_layers * built.layer.spec_ring_bytes
        ring = min(found.ring, charged) if built.spec_ring_per_request else (sizing.state.slots + 1) * per_slot
    verify = found.step_ssm + found.step_conv
    share = verify * (sizing.requests + 1) // (found.verified_rows + 1) if i.reserves_steps else 0
    steps = min(share, sizing.state.reserve_bytes)
    return Budgeted(sizing.state.slots * slot, slot, ring, steps, kv, draft)


def unbudgeted(
    built: AllocationInputs, stage: Stage, sizing: Sizing, found: Allocated, paid: Budgeted, late: int
) -> Unbudgeted:
    """The rest of a stage's pools, and `late` bytes that are allocated after them."""
    windows = spare = 0
    if built.layer is not None and sizing.state is not None:
        plain = stage.linear_layers * (found.slots + 1) * built.layer.conv_bytes
        windows = found.conv - plain
        spare = found.conv + found.ssm - windows - paid.slots - paid.padding
    ring_left = found.ring - paid.ring
    return Unbudgeted(
        spare_slots=spare + (ring_left if built.spec_ring else 0),
        verify=found.step_ssm + found.step_conv - paid.steps,
        windows=windows,
        decode_ring=0 if built.spec_ring else ring_left,
        checkpoint=found.checkpoint,
        req_to_token=found.req_to_token,
        padding_page=built.page * (stage.kv_cell + built.draft_rows_charged * stage.draft_cell),
        draft_rows=(built.draft_rows_per_row - built.draft_rows_charged) * found.kv_rows * stage.draft_cell,
        symmetric=late,
    )
