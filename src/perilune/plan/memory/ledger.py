"""The memory ledger of one server: what every byte of one GPU is for, and how many requests that admits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from perilune.errors import UnusableInput
from perilune.facts.hardware import Platform
from perilune.plan.memory import kv_cells
from perilune.plan.memory.allocated import Allocated, Stage, allocate, ring_error
from perilune.plan.memory.figures import Basis, Figure
from perilune.plan.memory.lines import reserve_bytes, stage_lines, stage_usage
from perilune.plan.memory.notices import Notice, boot_notices, headroom_notice
from perilune.plan.memory.pools import GIB, PoolInputs, Sizing, size_pools
from perilune.plan.memory.predict import FreeMemory, Measured, measured_memory, predicted_memory
from perilune.plan.memory.results import results
from perilune.plan.memory.split import requests_of_length
from perilune.plan.memory.terms import Terms, state_dtype, terms_of
from perilune.plan.memory.weights import StageWeights, stage_weights
from perilune.plan.model.geometry import Geometry, Indivisible, geometry_of
from perilune.plan.resolve.state import Rejected, Resolved

MOST_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class Range:
    """The least and most of a prediction, from the bands of the figures it rests on.

    `boots` is False where the server does not boot at the unlucky end; `low` is 0 then.
    """

    low: int
    high: int
    boots: bool = True


@dataclass(frozen=True, slots=True)
class Workload:
    """What the plan does for requests of one length, per attention-DP worker."""

    tokens: int  # input and output of one request
    by_kv: int  # requests of this length that the KV pool holds
    by_state: int | None  # requests the state pool holds
    admitted: int  # requests that run at once, each grown to its full length
    binds: str  # state | kv | asked
    tokens_at_cap: int  # tokens each request may reach when as many run as are admitted


@dataclass(frozen=True, eq=False)
class StageLedger:
    """One PP stage. `allocated` is None when sizing failed."""

    index: int
    layers: tuple[int, int]
    stage: Stage
    weights: StageWeights
    free_gib: float
    allocated: Allocated | None
    basis: Basis
    platform: Platform


@dataclass(frozen=True, eq=False)
class Ledger:
    """The ledger of a resolved server. `error` is SGLang's own text when it would refuse to boot.

    `error_stage` says where: `parse`, `resolve`, `check`, `groups`, `load` (the weights cannot be split,
    or exceed the memory; of the latter the text is ours, the engine just runs out of memory) or `pools`.

    Everything is per GPU, requests and slots per attention-DP worker. `terms` and `memory` are None when the
    arguments were refused; `sizing` is None whenever there is an error.
    """

    resolved: Resolved
    geometry: Geometry
    weights: tuple[StageWeights, ...]
    terms: Terms | None
    memory: FreeMemory | None
    inputs: PoolInputs | None
    sizing: Sizing | None
    error: str | None
    error_stage: str | None
    load_error: str | None = None  # what stops loading although boot-log figures were given

    @property
    def ok(self) -> bool:
        """Whether sizing succeeds. A server may still fail while pools are built: see `allocation_error`."""
        return self.error is None

    @property
    def basis(self) -> Basis:
        """`exact` with boot-log figures, `predicted` without."""
        return Basis.PREDICTED if self.memory is None else self.memory.basis

    @cached_property
    def allocation_error(self) -> str | None:
        """What stops a boot that sizing would let pass: while loading, or while the pools are built."""
        if self.terms is None or self.sizing is None:
            return None
        if self.load_error is not None:
            return self.load_error
        found = ring_error(self.terms.allocation)
        return None if found is None else found.message

    @property
    def boots(self) -> bool:
        """Whether the server gets past its memory pools."""
        return self.ok and self.allocation_error is None

    @cached_property
    def stages(self) -> tuple[StageLedger, ...]:
        """One entry a PP stage."""
        terms, memory, sizing = self.terms, self.memory, self.sizing
        if terms is None or memory is None:
            return ()
        return tuple(
            StageLedger(
                n,
                terms.layout.spans[n],
                stage,
                self.weights[n],
                memory.stage_free_gib[n],
                None if sizing is None else allocate(terms.allocation, stage, sizing),
                memory.basis,
                self.resolved.platform,
            )
            for n, stage in enumerate(terms.stages)
        )

    @cached_property
    def figures(self) -> Mapping[str, Figure]:
        """Every named figure: the results, their inputs and the ledger's lines (`stage0.` ... under PP)."""
        found = {figure.name: figure for figure in results(self)}
        for stage in self.stages:
            for line in self.lines(stage.index):
                name = f"stage{stage.index}.{line.name}" if len(self.stages) > 1 else line.name
                found[name] = dataclasses.replace(line, name=name)
        return found

    def lines(self, stage: int = 0) -> tuple[Figure, ...]:
        """The lines of one PP stage, which add up to the device's memory."""
        return stage_lines(self, self.stages[stage]) if self.stages else ()

    @property
    def weights_bytes(self) -> int:
        """Weights of target and draft on the fullest stage."""
        return max((stage.bytes for stage in self.weights), default=0)

    @property
    def admitted(self) -> int | None:
        """Requests the whole server runs at once: every attention-DP worker's."""
        if self.sizing is None or self.inputs is None:
            return None
        return self.sizing.requests * self.inputs.attn_dp

    @property
    def draft_tokens(self) -> int | None:
        """Tokens that a draft's own pool spans; None without speculation."""
        if self.sizing is None or self.resolved["speculative_algorithm"] is None:
            return None
        return self.sizing.logical_tokens

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """What the engine will print about this sizing, and what it will not notice."""
        if self.sizing is None or self.inputs is None or self.memory is None:
            return ()
        left = self.headroom_bytes
        said = None if left is None else headroom_notice(left, reserve_bytes(self.inputs), self.memory.total_bytes)
        return (*boot_notices(self.inputs, self.sizing), *([said] if said else ()))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices as text."""
        return tuple(notice.text for notice in self.notices)

    @property
    def headroom_bytes(self) -> int | None:
        """Bytes for graphs and activations after what no budget covers, on the fullest stage; None without pools."""
        if self.sizing is None or self.inputs is None or not self.stages:
            return None
        return reserve_bytes(self.inputs) - max(stage_usage(self, stage)[1].total for stage in self.stages)

    @property
    def kv_format(self) -> str:
        """The format of the KV that the pools hold, `auto` looked up."""
        return kv_cells.kv_format(self.resolved)

    @property
    def state_dtype(self) -> str:
        """The dtype of the recurrent states."""
        return state_dtype(self.resolved)

    @cached_property
    def requests_range(self) -> Range | None:
        """Requests admitted at either end of the prediction's band; None with boot-log figures or errors."""
        return self._at_bands(lambda inputs, sizing: sizing.requests)

    def workload_range(self, isl: int, osl: int) -> Range | None:
        """Requests of `isl` + `osl` tokens that one worker runs at once, at either end of the prediction's band."""
        return self._at_bands(
            lambda inputs, sizing: min(requests_of_length(inputs, sizing, isl + osl), sizing.requests)
        )

    @cached_property
    def tokens_range(self) -> Range | None:
        """`max_total_num_tokens` at either end of the prediction's band."""
        return self._at_bands(lambda inputs, sizing: sizing.tokens)

    def _at_bands(self, read: Callable[[PoolInputs, Sizing], int]) -> Range | None:
        memory, inputs = self.memory, self.inputs
        if memory is None or inputs is None or memory.low is None or memory.high is None or not self.ok:
            return None
        found, boots = [], True
        for before, free in (memory.low, memory.high):
            end = replace(inputs, before_gib=before, free_gib=free)
            try:
                found.append(read(end, size_pools(end)))
            except Rejected:
                boots = False
                found.append(0)
        return Range(min(found), max(found), boots)

    def workload(self, isl: int, osl: int) -> Workload | None:
        """What the plan does for requests of `isl` + `osl` tokens; None when it does not boot.

        Raises UnusableInput for lengths that are not positive or not possible.
        """
        if not 1 <= isl <= MOST_TOKENS or not 0 <= osl <= MOST_TOKENS:
            raise UnusableInput(f"Lengths {isl} and {osl} cannot be used.", where="--isl, --osl")
        sizing, inputs = self.sizing, self.inputs
        if sizing is None or inputs is None:
            return None
        by_kv = requests_of_length(inputs, sizing, isl + osl)
        by_state = None if sizing.slots is None else sizing.slots // inputs.slots_per_request
        kv_binds = by_kv < sizing.requests
        page = inputs.page * inputs.dcp
        return Workload(
            tokens=isl + osl,
            by_kv=by_kv,
            by_state=by_state,
            admitted=min(by_kv, sizing.requests),
            binds="kv" if kv_binds else str(sizing.binds),
            tokens_at_cap=sizing.logical_tokens // max(sizing.requests, 1) // page * page,
        )

    def to_json(self, demand: tuple[int, int] | None = None) -> dict[str, Any]:
        """The ledger as plain data. `demand` is (isl, osl); with it, what the plan does for that length."""
        from perilune.plan.memory.document import ledger_json

        return ledger_json(self, demand)


def ledger(resolved: Resolved, measured: Measured | None = None, *, geometry: Geometry | None = None) -> Ledger:
    """The ledger of a resolved server: exact with a boot's figures, predicted without.

    A refusal by the engine is an answer (`ok` is False). Raises UnusableInput for what is not modelled.
    """
    geometry = geometry or geometry_of(resolved.model)
    if not resolved.accepted:
        return Ledger(resolved, geometry, (), None, None, None, None, resolved.error, resolved.stage)
    try:
        terms = terms_of(resolved, geometry)
    except Rejected as refusal:
        return Ledger(resolved, geometry, (), None, None, None, None, refusal.message, refusal.stage)
    load_error = None
    try:
        weights = stage_weights(resolved, geometry)
    except Indivisible as refusal:
        load_error = f"AssertionError: {refusal.message}"
        weights = (StageWeights((), ()),) * len(terms.stages)
        if measured is None:
            return Ledger(resolved, geometry, (), None, None, None, None, load_error, "load")
    if measured is None:
        method = None if resolved.engine_model is None else resolved.engine_model.quantization
        memory = predicted_memory(resolved.platform, weights, method)
    else:
        memory = measured_memory(measured, resolved.platform, weights)
    inputs = replace(terms.pool, free_gib=memory.free_gib, before_gib=memory.before_gib)
    if memory.free_gib <= 0 and measured is None:
        text = _too_heavy(weights, memory, resolved.platform.unit)
        return Ledger(resolved, geometry, weights, terms, memory, inputs, None, text, "load")
    try:
        sizing = size_pools(inputs)
        return Ledger(resolved, geometry, weights, terms, memory, inputs, sizing, None, None, load_error)
    except Rejected as refusal:
        text, where = refusal.message, refusal.stage
        return Ledger(resolved, geometry, weights, terms, memory, inputs, None, text, where, load_error)


def _too_heavy(weights: tuple[StageWeights, ...], memory: FreeMemory, unit: str) -> str:
    most = max(stage.bytes for stage in weights) / GIB
    besides = memory.before_gib - min(memory.stage_free_gib) - most
    what = "weights and draft" if any(stage.draft for stage in weights) else "the weights"
    return (
        f"Loading runs out of memory: {what} take {most:.2f} GiB of each {unit} and loading itself "
        f"{besides:.2f} GiB; {memory.before_gib:.2f} GiB are free before it."
    )
