"""The parallel shape of one server, and who owns which layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from perilune.errors import Refused, UnusableInput

EXPERT_PARALLEL_A2A = frozenset({"megamoe", "flashinfer_megamoe", "deepep", "mooncake", "ascend_fuseep", "mori"})


class Indivisible(Refused):
    """A dimension that the parallel width does not divide. The message is the engine's own."""

    def __init__(self, size: int, width: int, what: str) -> None:
        super().__init__(f"{size} is not divisible by {width}", where=what)
        self.size = size
        self.width = width


def divide(size: int, width: int, what: str) -> int:
    """`size // width`; raises Indivisible, saying `what` was to be split, when it leaves a rest."""
    if size % width:
        raise Indivisible(size, width, what)
    return size // width


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelShape:
    """How many GPUs share what, and the loading choices that change the bytes a GPU holds.

    Widths are counts of GPUs. `kind` and `sm` are the platform's; `moe_runner` and `moe_a2a` are the engine's
    resolved names. Raises UnusableInput when the widths do not fit each other.
    """

    tp: int
    pp: int = 1
    ep: int = 1
    attn_dp: int = 1
    attn_cp: int = 1
    dcp: int = 1
    partition: str | None = None  # SGLANG_PP_LAYER_PARTITION
    dp_lm_head: bool = False  # --enable-dp-lm-head: the head is split over attention TP
    embed_replicated: bool = False  # SGLANG_ENABLE_EMBED_REPLICATION
    moe_dense_tp: int | None = None  # --moe-dense-tp-size
    dense_mlp_attn_tp: bool = False  # --enable-dense-mlp-attn-tp
    shared_experts_tp: int | None = None  # --shared-experts-tp-size, or attention TP when that is enabled
    fused_shared_experts: bool = False  # shared experts stored as one more routed expert per rank
    redundant_experts: int = 0  # --ep-num-redundant-experts
    encoder_dp: bool = False  # --mm-enable-dp-encoder: a whole vision tower per GPU
    moe_runner: str = "auto"
    moe_a2a: str = "none"
    aiter_wide_padding: bool = True  # ROCm without SGLANG_AITER_K3_OPT: experts padded to 256
    kind: str = "cuda"  # cuda | hip | npu
    sm: int | None = 100

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "ep", "attn_dp", "attn_cp", "dcp"):
            width = getattr(self, name)
            if not 1 <= width <= 1 << 16:
                raise UnusableInput(f"{name} is {width}; it must be from 1 to {1 << 16}.", where="parallel shape")
        for width, what in ((self.attn_dp * self.attn_cp, "attention DP x CP"), (self.ep, "EP")):
            if self.tp % width:
                raise UnusableInput(f"{what} {width} does not divide TP {self.tp}.", where="parallel shape")

    @property
    def attn_tp(self) -> int:
        """GPUs that split one attention layer's heads."""
        return self.tp // self.attn_dp // self.attn_cp

    @property
    def moe_tp(self) -> int:
        """GPUs that split one routed expert."""
        return self.tp // self.ep

    @property
    def dp_attention(self) -> bool:
        """Whether attention runs data-parallel inside the TP group."""
        return self.attn_dp > 1

    @property
    def expert_a2a(self) -> bool:
        """Whether tokens travel to their experts, so that MoE layers run on each GPU's own tokens."""
        return self.moe_a2a in EXPERT_PARALLEL_A2A


@lru_cache(maxsize=1024)
def stage_layers(num_layers: int, pp: int, partition: str | None = None) -> tuple[tuple[int, int], ...]:
    """[start, end) of each PP stage's layers: equal shares, the rest on the last stages.

    `partition` is SGLANG_PP_LAYER_PARTITION, such as `24,23,23,23`; it is ignored at PP 1. Raises UnusableInput.
    """
    if pp < 1 or pp > num_layers:
        raise UnusableInput(f"{num_layers} layers cannot be split over {pp} stages.", where="--pp-size")
    if partition is not None and pp > 1:
        return _from_partition(num_layers, pp, partition)
    share, rest = divmod(num_layers, pp)
    counts = [share + (stage >= pp - rest) for stage in range(pp)]
    return _spans(counts)


def _from_partition(num_layers: int, pp: int, partition: str) -> tuple[tuple[int, int], ...]:
    where = "SGLANG_PP_LAYER_PARTITION"
    parts = partition[:10_000].split(",")
    if not all(p.strip().isascii() and p.strip().isdigit() and len(p) < 10 for p in parts):
        raise UnusableInput(f"{partition[:60]!r} is not a list of layer counts.", where=where)
    counts = [int(p) for p in parts]
    if len(counts) != pp:
        raise UnusableInput(f"It lists {len(counts)} stages, but PP is {pp}.", where=where)
    if sum(counts) != num_layers:
        raise UnusableInput(f"Its counts add up to {sum(counts)}, not {num_layers} layers.", where=where)
    return _spans(counts)


def _spans(counts: list[int]) -> tuple[tuple[int, int], ...]:
    spans = []
    start = 0
    for count in counts:
        spans.append((start, start + count))
        start += count
    return tuple(spans)
