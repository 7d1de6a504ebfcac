"""Images: what the vision tower takes of a prefill, and where their features wait for it.

Rules of SGLang 0.5.23, stated from its source:
- The images that a chunk of prefill touches for the first time are encoded in front of its forward pass, in one call
  for the whole batch (managers/mm_schedule.py). An image cut by a chunk's end is encoded with the chunk it begins in:
  its embedding is kept until the rest follows.
- Kimi-K3 gives every attention-TP rank whole images, the largest first, each to the rank with the fewest patches so
  far (multimodal/mm_utils.py `get_dp_encoder_lb_assignment`); the slowest rank decides.
- With `SGLANG_VIT_ENABLE_CUDA_GRAPH=1` a rank captures the graph of a set of image sizes when it meets that set the
  second time, for two sets at most, and never if an image has more than 6,144 patches
  (multimodal/kimi_k3_vit_cuda_graph_runner.py; defaults in environ.py). Patches are what the tower attends over: four
  of them become one token of the prompt.
- With the `cuda_ipc` or `cuda_vmm` feature transport an image's pixels wait in a pool of `SGLANG_MM_FEATURE_CACHE_MB`
  from arrival until they are encoded; a tensor that finds no gap large enough goes over the CPU instead
  (multimodal/transport/memory_pool.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

PATCHES_PER_TOKEN: Final = 4
"""`merge_kernel_size` [2, 2] of Kimi-K3's vision config."""

PATCH_BYTES: Final = 3 * 14 * 14
"""Pixels wait as bytes (resizing is left to the tower's rank): three colours of a `patch_size` 14 patch."""

ALIGNMENT: Final = 256
SLICES: Final = 4096
CONTROL_BYTES: Final = 4  # a word for the producer and one for each reader, in every slice

Encode = Callable[[int, bool], int]
"""Ticks of the tower on one image of so many prompt tokens, replaying a graph or not (`Costs.encode`)."""


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """The tower's graph cache: SGLANG_KIMI_K3_VIT_CUDA_GRAPH_CACHE_CAPACITY, _MIN_HITS and _MAX_SEQLEN (patches)."""

    capacity: int = 2
    min_hits: int = 2
    max_patches: int = 6144


class Graphs:
    """The graphs of one rank's tower, by the sizes of the images of a call, in order."""

    def __init__(self, settings: GraphSettings) -> None:
        self._settings = settings
        self._captured: set[tuple[int, ...]] = set()
        self._seen: OrderedDict[tuple[int, ...], int] = OrderedDict()

    def replays(self, images: tuple[int, ...]) -> bool:
        """Whether this call (tokens of each image) replays a graph; it may be captured by this very call."""
        if images in self._captured:
            return True
        settings = self._settings
        if max(images) * PATCHES_PER_TOKEN > settings.max_patches:
            return False
        hits = self._seen.pop(images, 0) + 1
        self._seen[images] = hits
        if len(self._seen) > settings.capacity * 8:
            self._seen.popitem(last=False)
        if hits < settings.min_hits or len(self._captured) >= settings.capacity:
            return False
        self._captured.add(images)
        return True


def assign(images: Sequence[int], ranks: int) -> list[list[int]]:
    """The images (tokens) of each rank, in the order the rank encodes them."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for image in sorted(images, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(image)
        sizes[least] += image
    return shares


def touched(images: Sequence[int], start: int, end: int) -> range:
    """Which images begin in prompt tokens [start, end). A trace does not say where they are: they come first."""
    at = 0
    first = len(images)
    for index, image in enumerate(images):
        if at >= end:
            return range(min(first, index), index)
        if at >= start and index < first:
            first = index
        at += image
    return range(first, len(images))


class Tower:
    """The vision tower of one server, on `ranks` GPUs that each take whole images."""

    def __init__(self, encode: Encode, *, ranks: int = 1, graphs: GraphSettings | None = None) -> None:
        self._encode = encode
        self._ranks = ranks
        self._graphs = None if graphs is None else [Graphs(graphs) for _ in range(ranks)]

    def forward(self, images: Sequence[int]) -> int:
        """Ticks to encode these images (prompt tokens of each) in one call."""
        if not images:
            return 0
        if self._ranks == 1:
            return self._rank(0, tuple(images))
        shares = assign(images, self._ranks)
        return max(self._rank(rank, tuple(share)) for rank, share in enumerate(shares) if share)

    def _rank(self, rank: int, images: tuple[int, ...]) -> int:
        graph = self._graphs is not None and self._graphs[rank].replays(images)
        encode = self._encode
        return sum([encode(image, graph) for image in images])


def pixel_bytes(image: int) -> int:
    """Bytes of one image's pixels at the resolution the tower gets, from its prompt tokens."""
    return image * PATCHES_PER_TOKEN * PATCH_BYTES


class FeaturePool:
    """The pool of image pixels of one server: best fit, in whole 256 bytes, at most 4,096 images."""

    def __init__(self, size_bytes: int, *, readers: int) -> None:
        control = SLICES * (1 + readers) * CONTROL_BYTES
        begin = -(-control // ALIGNMENT) * ALIGNMENT
        self._gaps: list[tuple[int, int]] = [(begin, size_bytes)] if size_bytes > begin else []
        self._held: dict[int, tuple[int, int]] = {}
        self._next = 0

    @property
    def held(self) -> int:
        """Images waiting in the pool."""
        return len(self._held)

    @property
    def free_bytes(self) -> int:
        """Bytes in all gaps together."""
        return sum(end - start for start, end in self._gaps)

    def lease(self, image: int) -> int | None:
        """Keep an image's pixels; None where they go over the CPU instead."""
        size = -(-pixel_bytes(image) // ALIGNMENT) * ALIGNMENT
        fits = [(end - start, index) for index, (start, end) in enumerate(self._gaps) if end - start >= size]
        if not fits or len(self._held) >= SLICES:
            return None
        start, end = self._gaps.pop(min(fits)[1])
        if start + size < end:
            self._gaps.append((start + size, end))
        self._next += 1
        self._held[self._next] = (start, start + size)
        return self._next

    def release(self, leases: Iterable[int]) -> None:
        """The pixels have been read; neighbouring gaps become one."""
        gaps = self._gaps + [self._held.pop(lease) for lease in leases]
        gaps.sort()
        self._gaps = []
        for start, end in gaps:
            if self._gaps and self._gaps[-1][1] == start:
                self._gaps[-1] = (self._gaps[-1][0], end)
            else:
                self._gaps.append((start, end))
