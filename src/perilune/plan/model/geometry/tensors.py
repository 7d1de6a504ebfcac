"""Groups of equal weight matrices: shape, owning layers, storage, and how the engine splits them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from perilune.plan.model.geometry.shape import Indivisible, ParallelShape, divide
from perilune.plan.model.geometry.storage import BF16, F32, Storage

VOCAB_MULTIPLE = 64
VOCABULARY = frozenset({"embedding", "embedding over TP", "embedding, whole under DP attention", "lm_head"})


@dataclass(frozen=True, slots=True)
class Owner:
    """Which pipeline stage holds a tensor: the stages of these layers, or the first, the last, or every stage."""

    layers: tuple[int, ...] = ()  # ascending, 0-based
    place: str = "layers"  # layers | first | last | every

    @property
    def units(self) -> int:
        """Copies in the checkpoint."""
        return len(self.layers) if self.place == "layers" else 1

    def held(self, start: int, end: int, stage: int, stages: int) -> int:
        """Copies on the stage that holds layers [start, end)."""
        if self.place == "layers":
            return bisect_left(self.layers, end) - bisect_left(self.layers, start)
        if self.place == "first":
            return int(stage == 0)
        return int(self.place == "every" or stage == stages - 1)


FIRST = Owner(place="first")
LAST = Owner(place="last")
EVERY = Owner(place="every")


@dataclass(frozen=True, slots=True)
class Split:
    """How the engine splits a matrix over GPUs: along `rows` (outputs), `cols` (inputs), or not at all.

    `heads` is given for key and value projections: with more GPUs than heads each GPU keeps one whole head.
    """

    axis: str  # rows | cols | none
    over: str  # what it is split over, in the words of a ledger
    heads: int = 0

    def width(self, shape: ParallelShape) -> int:
        """How many GPUs share one copy."""
        if self.axis == "none":
            return 1
        return _WIDTHS[self.over](shape)

    def rows(self, rows: int, shape: ParallelShape, what: str) -> int:
        """Rows one GPU keeps; raises Indivisible."""
        if self.axis != "rows":
            return rows
        width = self.width(shape)
        if self.over in VOCABULARY:
            return padded_vocabulary(rows, width) // width
        if not self.heads:
            return divide(rows, width, what)
        larger, smaller = max(self.heads, width), min(self.heads, width)
        if larger % smaller:
            raise Indivisible(self.heads, width, what)
        return rows // self.heads * max(1, self.heads // width)

    def cols(self, cols: int, shape: ParallelShape, what: str) -> int:
        """Columns one GPU keeps; raises Indivisible."""
        return divide(cols, self.width(shape), what) if self.axis == "cols" else cols


def padded_vocabulary(rows: int, width: int) -> int:
    """Vocabulary rows after the engine's padding: to a multiple of 64, or of 64 x width when that does not divide."""
    padded = -(-rows // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    if padded % width:
        multiple = VOCAB_MULTIPLE * width
        padded = -(-rows // multiple) * multiple
    return padded


def _embedding(shape: ParallelShape) -> int:
    if shape.embed_replicated:
        return 1
    return shape.attn_tp if shape.dp_attention else shape.tp


def _dense(shape: ParallelShape) -> int:
    if shape.dense_mlp_attn_tp and shape.dp_attention:
        return shape.attn_tp
    return shape.tp


def _dense_fully_dp(shape: ParallelShape) -> int:
    return 1 if shape.moe_dense_tp == 1 else shape.tp


def _shared(shape: ParallelShape) -> int:
    if shape.fused_shared_experts:
        return shape.moe_tp
    if shape.expert_a2a:
        return shape.shared_experts_tp or 1
    return shape.tp


_WIDTHS: dict[str, Callable[[ParallelShape], int]] = {
    "attention TP": lambda shape: shape.attn_tp,
    "TP": lambda shape: shape.tp,
    "draft TP": lambda shape: shape.attn_tp if shape.dp_attention else shape.tp,
    "dense TP": _dense,
    "dense TP or whole": _dense_fully_dp,
    "shared-expert TP": _shared,
    "embedding": _embedding,
    "embedding over TP": lambda shape: shape.tp,
    "embedding, whole under DP attention": lambda shape: 1 if shape.dp_attention else shape.tp,
    "lm_head": lambda shape: shape.attn_tp if shape.dp_lm_head else shape.tp,
    "encoder TP": lambda shape: 1 if shape.encoder_dp else shape.attn_tp,
}


@dataclass(frozen=True, slots=True)
class Units:
    """Things that one GPU holds whole, such as heads: their number must divide by what they are split over."""

    count: int
    over: str
    what: str

    def check(self, shape: ParallelShape) -> None:
        """Raise Indivisible when a GPU would get a part of one."""
        divide(self.count, _WIDTHS[self.over](shape), self.what)


WHOLE = Split("none", "every GPU")
ATTN_ROWS = Split("rows", "attention TP")
ATTN_COLS = Split("cols", "attention TP")
TP_ROWS = Split("rows", "TP")
TP_COLS = Split("cols", "TP")
EMBEDDING = Split("rows", "embedding")
EMBEDDING_TP = Split("rows", "embedding over TP")
EMBEDDING_WHOLE_UNDER_DP = Split("rows", "embedding, whole under DP attention")
LM_HEAD = Split("rows", "lm_head")


@dataclass(frozen=True, slots=True)
class Tensors:
    """`count` matrices of `rows` x `cols` per owner. A format of None means: not in the checkpoint, or not resident."""

    name: str
    group: str  # the ledger line
    rows: int
    cols: int
    owner: Owner
    split: Split = WHOLE
    stored: Storage | None = BF16
    resident: Storage | None = BF16
    count: int = 1

    @property
    def parameters(self) -> int:
        """Elements in the checkpoint."""
        return self.rows * self.cols * self.count * self.owner.units if self.stored else 0

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes in the checkpoint."""
        if self.stored is None:
            return 0
        return self.stored.size(self.rows, self.cols) * self.count * self.owner.units

    @property
    def checkpoint_tensors(self) -> int:
        """Named tensors in the checkpoint."""
        return self.stored.tensors * self.count * self.owner.units if self.stored else 0


def rotary_table(positions: int, width: int) -> Tensors:
    """The engine's cosine and sine table in F32, one per GPU for all layers of a model."""
    return Tensors("rotary table", "rotary table", positions, width, EVERY, stored=None, resident=F32)
