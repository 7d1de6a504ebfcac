"""The images of one server: from their arrival, over the feature pool, to the tower in front of a prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perilune.errors import UnusableInput
from perilune.facts.timing import machines
from perilune.plan.planned import PlannedPool
from perilune.rehearse.environment import whole
from perilune.rehearse.live import Live
from perilune.rehearse.ticks import ticks
from perilune.rehearse.vision import Encode, FeaturePool, GraphSettings, Tower, pixel_bytes, touched

MIB = 1 << 20
POOL_MIB = 1024
"""Default of SGLANG_MM_FEATURE_CACHE_MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """The tower and the feature transport of a server. `tower_ranks` is the attention-TP size."""

    tower_ranks: int = 1
    graphs: GraphSettings | None = None
    pool_bytes: int | None = None  # None: pixels always go over the CPU
    host_bytes_per_s: float  # of one GPU, from host memory


def image_settings(item: PlannedPool) -> ImageSettings | None:
    """Of a planned pool; None on decode servers, which images never get to.

    Raises UnusableInput for a server that leaves them to encoders.
    """
    v, env = item.resolved.values, item.resolved.env
    if item.pool.role == "decode":
        return None
    if v["language_only"]:
        raise UnusableInput(
            "A --language-only server encodes no images.",
            where=f"{item.pool.role} pool",
            fix="Give it encoders, or rehearse requests without images.",
        )
    pooled = v["mm_feature_transport"] in ("cuda_ipc", "cuda_vmm")
    return ImageSettings(
        tower_ranks=max(v["tp_size"] // v["attn_dp_size"] // v["attn_cp_size"], 1),
        graphs=graph_settings(item),
        pool_bytes=whole(env, "SGLANG_MM_FEATURE_CACHE_MB", POOL_MIB) * MIB if pooled else None,
        host_bytes_per_s=machines()[item.resolved.platform.id].host.value,
    )


def graph_settings(item: PlannedPool) -> GraphSettings | None:
    """The graph cache of the tower; None where it is off, as it is unless SGLANG_VIT_ENABLE_CUDA_GRAPH is set."""
    env = item.resolved.env
    if item.resolved.platform.kind != "cuda" or not item.resolved.flag_env("SGLANG_VIT_ENABLE_CUDA_GRAPH"):
        return None
    prefix, known = "SGLANG_KIMI_K3_VIT_CUDA_GRAPH_", GraphSettings()
    return GraphSettings(
        capacity=whole(env, f"{prefix}CACHE_CAPACITY", known.capacity),
        min_hits=whole(env, f"{prefix}MIN_HITS", known.min_hits),
        max_patches=whole(env, f"{prefix}MAX_SEQLEN", known.max_patches),
    )


class Images:
    """Pixels that wait, and towers, one of each attention-DP rank."""

    def __init__(self, settings: ImageSettings, encode: Encode, ranks: int) -> None:
        self._towers = [Tower(encode, ranks=settings.tower_ranks, graphs=settings.graphs) for _ in range(ranks)]
        size = settings.pool_bytes
        self._pool = None if size is None else FeaturePool(size, readers=settings.tower_ranks)
        self._leases: dict[Live, list[int | None]] = {}
        self._second = settings.host_bytes_per_s

    def arrive(self, live: Live) -> int:
        """The pixels of a request take their places; returns how many images found none and go over the CPU."""
        if self._pool is None:
            return 0
        leases = self._leases[live] = [self._pool.lease(image) for image in live.request.images]
        return leases.count(None)

    def forward(self, rank: int, parts: Sequence[tuple[Live, int, int]]) -> int:
        """Ticks in front of a prefill that computes these parts of prompts: pixels come, the tower encodes them."""
        images: list[int] = []
        over_cpu = 0
        for live, start, end in parts:
            found = live.request.images
            leases = self._leases.get(live)
            for index in touched(found, start, end):
                images.append(found[index])
                if leases is None or leases[index] is None:
                    over_cpu += pixel_bytes(found[index])
            if end >= live.isl and leases is not None and self._pool is not None:
                del self._leases[live]
                self._pool.release(lease for lease in leases if lease is not None)
        return ticks(over_cpu / self._second) + self._towers[rank].forward(images)
