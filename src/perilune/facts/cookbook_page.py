"""The eight tables of the Kimi-K3 page as data. Data in `data/recipes/page.yaml`."""

from __future__ import annotations

from functools import cache

import msgspec

from perilune.facts.load import load
from perilune.facts.recipes import Confidence, Role


class Lever(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A capacity lever: the flags or environment that pull it, and what it does."""

    id: str
    effect: str
    flags: str = ""
    env: str = ""
    slots_per_request: int | None = None
    range: tuple[float, float] | None = None


class PlatformNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page says of one platform."""

    hardware: tuple[str, ...]
    topology: str
    layout: str
    notes: tuple[str, ...]
    disputed: str = ""


class AmdEnv(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment variable of ROCm on gfx950. `default` None means unset."""

    name: str
    value: str
    effect: str
    shipped: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    disputed: str = ""


class PdPool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pool of the A3 2P4D layout."""

    role: Role
    nodes: int
    layout: str
    speculation: str
    graphs: str


class VlmTransport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The path of image features for a picker selection."""

    selection: str
    where: str
    path: str


class VlmFeature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Kimi-K3 behaves with a vision feature."""

    feature: str
    behaviour: str


class PresetShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a preset; its trade is in the preset itself."""

    preset: str
    shape: str


class PresetScale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A preset at one size: nodes of 8 GPUs (B200, B300) and of 4 (GB200, GB300)."""

    gpus: int
    nodes_of_8: int
    nodes_of_4: int
    tp_size: int
    ep_size: int
    attn_dp_size: int


class VisionStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A starting point for vision with little memory to spare."""

    hardware: str
    flags: str
    notes: tuple[str, ...]
    disputed: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page's tables and the statements around them."""

    sources: tuple[str, ...]
    confidence: Confidence
    capacity_levers: tuple[Lever, ...]
    platform_notes: tuple[PlatformNote, ...]
    amd_environment: tuple[AmdEnv, ...]
    a3_pd_pools: tuple[PdPool, ...]
    vlm_transport: tuple[VlmTransport, ...]
    vlm_features: tuple[VlmFeature, ...]
    preset_rows: tuple[PresetShape, ...]
    preset_scaling: tuple[PresetScale, ...]
    statements: tuple[str, ...]
    low_memory_vision_start: VisionStart


@cache
def page() -> Page:
    """The page's tables."""
    return load("recipes/page.yaml", Page)
