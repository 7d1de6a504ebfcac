"""Which storage format each class of tensors has, read from a checkpoint's quantization section.

Patterns of an ignore list are only searched for known module names, never run as regular expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perilune.errors import UnusableInput
from perilune.plan.model.config import ModelConfig
from perilune.plan.model.geometry.storage import (
    BF16,
    FORMATS,
    FP8,
    FP8_BLOCK,
    INT4_G32,
    MXFP4,
    NVFP4,
    Storage,
)

MODULES = {
    "attention": ("self_attn", "q_proj", "o_proj", "mixer"),
    "linear": ("self_attn", "linear_attn", "mixer"),
    "shared": ("shared_expert",),
    "dense": ("mlp.gate_proj", "mlp\\.(gate", "mlp.gate_up_proj", "mlp.down_proj"),
    "head": ("lm_head",),
}
PACKED = {
    "mxfp4-pack-quantized": MXFP4,
    "nvfp4-pack-quantized": NVFP4,
    "pack-quantized": INT4_G32,
    "float-quantized": FP8,
}
ALGORITHMS = {"FP8": FP8, "FP8_PB_WO": FP8_BLOCK, "NVFP4": NVFP4, "NVFP4_AWQ": NVFP4, "MXFP4": MXFP4}


@dataclass(frozen=True, slots=True)
class Layout:
    """Storage of each class of tensors. Embeddings, norms, routers and vision towers are BF16 in all of them."""

    attention: Storage = BF16  # projections of full attention
    linear: Storage = BF16  # projections of recurrent layers
    experts: Storage = BF16
    shared: Storage = BF16
    dense: Storage = BF16
    latent: Storage = BF16
    head: Storage = BF16
    input_scales: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing is quantized."""
        return self == Layout()


def layout_of(config: ModelConfig) -> Layout:
    """The layout of a checkpoint; raises UnusableInput for a quantization that is not known."""
    known = config.known.quantization if config.known else None
    if known is not None and known.layout:
        formats = {name: FORMATS[value] for name, value in known.layout.items()}
        return Layout(**formats, input_scales=formats.get("experts") is NVFP4)
    section = config.quantization_config
    return Layout() if section is None else _from_section(section, config.path)


def _from_section(section: Mapping[str, Any], where: str) -> Layout:
    inner = section.get("quantization")
    values = inner if isinstance(inner, Mapping) else section
    method = str(section.get("quant_method") or "").lower()
    algorithm = str(values.get("quant_algo") or "").upper()
    if method == "fp8":
        return _fp8(section)
    if method == "mxfp4":
        return Layout(experts=MXFP4)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(section, where)
    if algorithm == "MIXED_PRECISION":
        return _mixed(values.get("quantized_layers"), where)
    if algorithm in ALGORITHMS:
        stored = ALGORITHMS[algorithm]
        return replace(
            _everywhere(stored, _patterns(values, "exclude_modules", "ignore")), input_scales=stored is NVFP4
        )
    name = method or algorithm or "an unnamed method"
    raise UnusableInput(
        f"quantization_config names {name[:60]}, whose byte layout is not known.",
        where=where,
        fix="Known: fp8, mxfp4, compressed-tensors, modelopt (FP8, NVFP4, MIXED_PRECISION).",
    )


def _fp8(section: Mapping[str, Any]) -> Layout:
    stored = FP8_BLOCK if section.get("weight_block_size") else FP8
    layout = _everywhere(stored, _patterns(section, "modules_to_not_convert", "ignored_layers", "ignore"))
    return replace(layout, head=BF16)


def _compressed(section: Mapping[str, Any], where: str) -> Layout:
    stored = PACKED.get(str(section.get("format") or ""))
    if stored is None:
        raise UnusableInput(
            f"quantization_config format {str(section.get('format'))[:60]!r} is not known.",
            where=where,
            fix=f"Known: {', '.join(PACKED)}.",
        )
    return _everywhere(stored, _patterns(section, "ignore"))


def _mixed(layers: object, where: str) -> Layout:
    if not isinstance(layers, Mapping):
        raise UnusableInput("quantization_config quantized_layers is missing.", where=where)
    found: dict[str, Storage] = {}
    for name, entry in layers.items():
        algorithm = str(entry.get("quant_algo") or "").upper() if isinstance(entry, Mapping) else ""
        stored = ALGORITHMS.get(algorithm)
        if stored is None:
            raise UnusableInput(f"quantized_layers names {algorithm[:40]!r}, which is not known.", where=where)
        found.setdefault(_class_of(str(name)), stored)
    attention = found.pop("attention", BF16)
    return Layout(
        attention=attention,
        linear=found.pop("linear", attention),
        **found,
        input_scales=found.get("experts") is NVFP4,
    )


def _class_of(module: str) -> str:
    if "shared_expert" in module:
        return "shared"
    if "expert" in module:
        return "experts"
    if "lm_head" in module:
        return "head"
    if "linear_attn" in module or "mixer.in_proj" in module or "mixer.out_proj" in module:
        return "linear"
    return "attention" if "attn" in module or "mixer" in module else "dense"


def _everywhere(stored: Storage, ignored: tuple[str, ...]) -> Layout:
    """`stored` for routed experts and for every class of linear layers that the ignore list does not name."""

    def kept(name: str) -> Storage:
        named = any(module in pattern for pattern in ignored for module in MODULES[name])
        return BF16 if named else stored

    return Layout(
        attention=kept("attention"),
        linear=kept("linear"),
        experts=stored,
        shared=kept("shared"),
        dense=kept("dense"),
        head=kept("head"),
        input_scales=stored is NVFP4,
    )


def _patterns(section: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    found: list[str] = []
    for key in keys:
        value = section.get(key)
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            found.extend(item for item in value if isinstance(item, str))
    return tuple(found)
