"""Weight bytes one GPU holds on one pipeline stage, by group, with the derivation of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from perilune.errors import UnusableInput
from perilune.plan.model.geometry.base import Geometry
from perilune.plan.model.geometry.blocks import QUERY_PROJECTIONS, W_KC
from perilune.plan.model.geometry.experts import ExpertSlice, resident_slice
from perilune.plan.model.geometry.shape import ParallelShape, stage_layers
from perilune.plan.model.geometry.storage import BF16, Storage
from perilune.plan.model.geometry.tensors import Tensors

ROUTED = "routed experts"
BIASES = "expert zero biases"


@dataclass(frozen=True, slots=True)
class Held:
    """`units` x `count` matrices of `rows` x `cols` on one GPU."""

    tensors: Tensors
    units: int
    rows: int
    cols: int
    storage: Storage

    @property
    def bytes(self) -> int:
        """Resident bytes."""
        return self.storage.size(self.rows, self.cols) * self.tensors.count * self.units

    @property
    def term(self) -> str:
        """One summand of a formula: `69 x 4 x 1,536 x 7,168 x 2 B (kda qkvg)`."""
        factors = [self.units, self.tensors.count, self.rows, self.cols]
        shown = [f"{n:,}" for n in factors if n != 1] or ["1"]
        return f"{' x '.join(shown)} x {self.storage.per_element} B ({self.tensors.name})"


@dataclass(frozen=True, eq=False)
class WeightGroup:
    """One ledger line of weights: resident bytes on one GPU of one stage."""

    name: str
    bytes: int
    sharding: str
    parts: tuple[Held, ...] = ()
    text: str = ""  # the formula of a group that is not a sum of matrices

    @cached_property
    def formula(self) -> str:
        """The bytes with the numbers put in."""
        return self.text or " + ".join(part.term for part in self.parts)


@lru_cache(maxsize=512)
def resident_weights(geometry: Geometry, shape: ParallelShape, stage: int = 0) -> tuple[WeightGroup, ...]:
    """What one GPU of pipeline stage `stage` holds after loading, largest group first.

    Raises Indivisible where the engine could not split the model, and UnusableInput for a stage that is not there.
    """
    start, end = _span(geometry, shape, stage)
    for unit in geometry.units:
        unit.check(shape)
    held: dict[str, list[Held]] = {}
    for t in geometry.tensors:
        units = t.owner.held(start, end, stage, shape.pp)
        if t.resident is None or not units:
            continue
        rows, cols = t.split.rows(t.rows, shape, t.name), t.split.cols(t.cols, shape, t.name)
        held.setdefault(t.group, []).append(Held(t, units, rows, cols, t.resident))
    groups = [_group(name, tuple(parts), shape) for name, parts in held.items()]
    groups.extend(_experts(geometry, shape, start, end))
    return tuple(sorted(groups, key=lambda g: -g.bytes))


def weight_bytes(geometry: Geometry, shape: ParallelShape, stage: int = 0) -> int:
    """Bytes of every weight group of one GPU on one stage."""
    return sum(group.bytes for group in resident_weights(geometry, shape, stage))


def replicated_query(geometry: Geometry, shape: ParallelShape, stage: int = 0) -> WeightGroup | None:
    """The query weights that --dcp-replicate-q-proj gathers over a DCP group, or None where there is nothing to gather.

    They are copied after the pools were sized, so no budget holds them. Only 16-bit query projections are gathered.
    """
    if shape.dcp == 1:
        return None
    start, end = _span(geometry, shape, stage)
    parts = []
    for t in geometry.tensors:
        if t.group not in ("MLA attention", "absorbed MLA copies") or t.name not in (*QUERY_PROJECTIONS, W_KC):
            continue
        units = t.owner.held(start, end, stage, shape.pp)
        if units and t.resident is BF16:
            parts.append(Held(t, units, t.split.rows(t.rows, shape, t.name) * shape.dcp, t.cols, BF16))
    if len(parts) != 2:
        return None
    total = sum(part.bytes for part in parts)
    return WeightGroup("replicated query weights", total, f"gathered over DCP {shape.dcp}", tuple(parts))


def _span(geometry: Geometry, shape: ParallelShape, stage: int) -> tuple[int, int]:
    spans = stage_layers(geometry.num_layers, shape.pp, shape.partition)
    if not 0 <= stage < len(spans):
        raise UnusableInput(f"Stage {stage} is not one of {len(spans)}.", where="pipeline stage")
    return spans[stage]


def _group(name: str, parts: tuple[Held, ...], shape: ParallelShape) -> WeightGroup:
    widths = {part.tensors.split.over: part.tensors.split.width(shape) for part in parts}
    said = [f"split over {over} {width}" if width > 1 else "whole" for over, width in widths.items()]
    sharding = ", ".join(dict.fromkeys(said))
    return WeightGroup(name, sum(part.bytes for part in parts), sharding, parts)


def _experts(geometry: Geometry, shape: ParallelShape, start: int, end: int) -> list[WeightGroup]:
    experts = geometry.experts
    if experts is None:
        return []
    layers = sum(start <= layer < end for layer in experts.layers)
    if not layers:
        return []
    piece = resident_slice(experts, shape)
    said = [f"experts over EP {shape.ep}"] if shape.ep > 1 else []
    said += [f"each expert over MoE TP {shape.moe_tp}"] if shape.moe_tp > 1 else []
    sharding = ", ".join(said) or "whole"
    shape_text = f"{layers} x {piece.local:,} experts x {experts.matrices} x {piece.hidden:,} x {piece.intermediate:,}"
    weights = layers * (piece.weight_bytes + piece.scale_bytes)
    found = [
        WeightGroup(ROUTED, weights, sharding, text=f"{shape_text} x {piece.storage.per_element} B ({piece.note})")
    ]
    if piece.bias_bytes:
        found.append(WeightGroup(BIASES, layers * piece.bias_bytes, sharding, text=_bias_text(geometry, piece, layers)))
    return found


def _bias_text(geometry: Geometry, piece: ExpertSlice, layers: int) -> str:
    up = geometry.experts.up_matrices if geometry.experts else 0
    each = up * piece.intermediate + piece.hidden
    return (
        f"{layers} x {piece.local:,} experts x ({up} x {piece.intermediate:,} + {piece.hidden:,})"
        f" x {piece.bias_bytes // (piece.local * each)} B ({piece.note})"
    )
