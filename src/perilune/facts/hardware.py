"""Accelerators and platforms: memory, bandwidth, node shape, fabric, image. Data in `platforms.yaml`."""

from __future__ import annotations

from functools import cache

import msgspec

from perilune.errors import UnusableInput
from perilune.facts.load import load


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator (a die, for Ascend A3). Memory is what the driver reports, in MiB."""

    id: str
    name: str
    kind: str  # cuda | hip | npu
    sm: int | None = None  # compute capability x 10, CUDA only (90, 100, 103)
    gfx: str | None = None  # AMD target such as gfx950
    memory_mib: int
    memory_source: str
    memory_confidence: str  # high | medium | low
    nominal_gb: float
    hbm_bytes_per_s: float
    hbm_source: str
    bf16_flops: float | None = None
    fp8_flops: float | None = None
    fp4_flops: float | None = None
    link_bytes_per_s: float | None = None  # scale-up, per GPU, one way
    source: str
    confidence: str


class Platform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A platform of the recipe catalog: an accelerator in nodes of a given shape."""

    id: str
    label: str
    family: str  # blackwell | hopper | amd | npu
    accelerator: Accelerator
    gpus_per_node: int
    unit: str = "GPU"  # what one rank runs on: GPU, die or card
    scale_up_domain: int  # GPUs reachable over the scale-up fabric
    fabric: str
    topology: str
    images: dict[str, str]  # quantization -> image
    notes: tuple[str, ...] = ()
    source: str
    confidence: str

    @property
    def kind(self) -> str:
        """`cuda`, `hip` or `npu`."""
        return self.accelerator.kind

    @property
    def sm(self) -> int | None:
        """CUDA compute capability x 10 (90, 100, 103); None off CUDA."""
        return self.accelerator.sm

    @property
    def memory_mib(self) -> int:
        """Driver-reported memory of one accelerator, in MiB."""
        return self.accelerator.memory_mib


class _Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    accelerators: tuple[Accelerator, ...]
    platforms: tuple[dict[str, object], ...]


@cache
def platforms() -> dict[str, Platform]:
    """Every platform by id, in catalog order."""
    catalog = load("platforms.yaml", _Catalog)
    accelerators = {a.id: a for a in catalog.accelerators}
    found: dict[str, Platform] = {}
    for entry in catalog.platforms:
        fields = {**entry, "accelerator": accelerators[str(entry["accelerator"])]}
        platform = msgspec.convert(fields, Platform)
        found[platform.id] = platform
    return found


ALIASES = {"a5": "950", "npu": "a3", "950pr": "950", "950dt": "950"}


def platform(name: str) -> Platform:
    """The platform called `name` (case-insensitive); raises UnusableInput naming the known ones."""
    key = name.strip().lower()
    found = platforms().get(ALIASES.get(key, key))
    if found is None:
        raise UnusableInput(f"Unknown platform {name!r}.", where="--platform", fix=f"Known: {' '.join(platforms())}.")
    return found
