"""A Hugging Face `config.json` as the engine reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from perilune.facts.models import Model, Quantization, find
from perilune.plan.model import architectures
from perilune.plan.model.fields import Fields
from perilune.plan.model.layers import LayerPlan, plan_layers

MAX_HEADS = 1 << 16

_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)


@dataclass(frozen=True)
class ModelConfig:
    """One model's configuration: the raw mapping, and what resolution and geometry ask of it."""

    path: str  # the hub id or local path as written
    raw: Mapping[str, Any] = field(hash=False)
    known: Model | None = field(default=None, hash=False)  # the catalog entry, when it came from one
    assumption: str | None = field(default=None, hash=False)  # what had to be assumed to find it

    @property
    def architecture(self) -> str:
        """The engine's architecture name, such as `KimiK3ForConditionalGeneration`."""
        return str(self.raw["architectures"][0])

    @property
    def model_type(self) -> str:
        """The config's `model_type`, empty when it names none."""
        return str(self.raw.get("model_type") or "")

    @property
    def text(self) -> Mapping[str, Any]:
        """The text model's section (the whole config when it has none)."""
        section = self.raw.get("text_config")
        return section if isinstance(section, Mapping) else self.raw

    @property
    def vision(self) -> Mapping[str, Any] | None:
        """The vision section, or None."""
        section = self.raw.get("vision_config")
        return section if isinstance(section, Mapping) else None

    @cached_property
    def fields(self) -> Fields:
        """Checked access to the text section; its errors name the file and the field."""
        nested = self.text is not self.raw
        return Fields(self.text, f"{self.path} config" + (" text_config" if nested else ""))

    @property
    def is_draft(self) -> bool:
        """Whether this is a speculative draft that only runs beside a target."""
        return self.architecture in architectures.DRAFTS

    @property
    def is_mla(self) -> bool:
        """Whether the engine's full attention is MLA (one latent per token) and not per-head KV."""
        name = self.architecture
        if name in architectures.MLA_WITH_A_LATENT:
            return self.fields.has("kv_lora_rank")
        if name in architectures.MLA_UNLESS_TOLD:
            return self.text.get("use_mla", True) is not False
        return name in architectures.MLA

    @property
    def is_multimodal(self) -> bool:
        """Whether the engine treats the model as multimodal: by architecture or by a text section of its own."""
        return self.architecture in architectures.MULTIMODAL or self.text is not self.raw

    @property
    def is_kimi_k3(self) -> bool:
        """Whether the engine's Kimi-K3 rules apply."""
        return self.architecture in architectures.KIMI_K3

    @cached_property
    def context_length(self) -> int:
        """Tokens of context the engine derives without --context-length; 2048 when the config is silent."""
        scaling = self.text.get("rope_scaling")
        factor = 1.0
        if isinstance(scaling, Mapping) and scaling:
            fixed = "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3"
            given = scaling.get("factor", 1)
            if not fixed and isinstance(given, int | float) and math.isfinite(given) and 0 < given <= 1e6:
                factor = float(given)
        for key in _CONTEXT_KEYS:
            if self.fields.has(key):
                return int(factor * self.fields.integer(key))
        return 2048

    @cached_property
    def layers(self) -> LayerPlan:
        """Which layers are recurrent and which hold KV; without MTP layers."""
        return plan_layers(self.fields)

    @property
    def num_layers(self) -> int:
        """Decoder layers of the text model, without MTP layers."""
        return self.layers.count

    @property
    def linear_kind(self) -> str | None:
        """The recurrent mixer of a hybrid model: `kda`, `gdn`, `mamba2`, or None for pure attention."""
        return self.layers.kind

    @property
    def linear_layers(self) -> tuple[int, ...]:
        """0-based indices of the recurrent layers."""
        return self.layers.linear

    @property
    def full_layers(self) -> tuple[int, ...]:
        """0-based indices of the layers that hold KV."""
        return self.layers.full

    @cached_property
    def num_heads(self) -> int:
        """Query heads of a full-attention layer."""
        return self.fields.integer("num_attention_heads", high=MAX_HEADS)

    @cached_property
    def num_kv_heads(self) -> int:
        """Key/value heads of a full-attention layer (as written: equal to the query heads for MLA)."""
        heads = self.fields.integer("num_key_value_heads", high=MAX_HEADS, default=self.num_heads)
        if self.num_heads % heads:
            raise self.fields.bad("num_key_value_heads", f"is {heads}, which does not divide {self.num_heads} heads")
        return heads

    @cached_property
    def head_dim(self) -> int:
        """Dimension of one head of per-head attention; hidden_size // heads when the config is silent."""
        return self.fields.integer("head_dim", high=1 << 16, default=max(1, self.hidden_size // self.num_heads))

    @cached_property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.fields.integer("hidden_size", high=1 << 24)

    @cached_property
    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        return self.fields.integer("vocab_size", high=1 << 28)

    @cached_property
    def num_experts(self) -> int:
        """Routed experts of a MoE layer; 0 for a dense model."""
        for key in ("num_experts", "n_routed_experts", "num_local_experts"):
            if self.fields.has(key):
                return self.fields.integer(key, low=0, high=1 << 20)
        return 0

    @property
    def is_moe(self) -> bool:
        """Whether some layers hold routed experts."""
        return self.num_experts > 0

    @cached_property
    def quantization_config(self) -> Mapping[str, Any] | None:
        """The config's own quantization section, wherever it stands."""
        for section in (self.raw, self.text):
            for key in ("quantization_config", "compression_config"):
                found = section.get(key)
                if isinstance(found, Mapping):
                    return found
        return None

    @cached_property
    def quantization(self) -> Quantization | None:
        """Method, format and KV scheme of the stored weights; None for a plain BF16 checkpoint."""
        if self.known is not None and self.known.quantization is not None:
            return self.known.quantization
        section = self.quantization_config
        if section is None:
            return None
        stated = section.get("format")
        return Quantization(
            method=str(section.get("quant_method") or section.get("quant_algo") or "unknown").lower(),
            format=stated if isinstance(stated, str) else None,
            kv_cache="fp8" if _declares_fp8_kv(section) else None,
        )

    @property
    def quant_method(self) -> str | None:
        """The engine's quantization method of the checkpoint, or None."""
        return self.quantization.method if self.quantization else None

    @property
    def quant_format(self) -> str | None:
        """The packing format, such as `mxfp4-pack-quantized`, or None."""
        return self.quantization.format if self.quantization else None

    @property
    def kv_cache_quant(self) -> str | None:
        """`fp8` when the checkpoint declares an FP8 KV scheme, else None."""
        return self.quantization.kv_cache if self.quantization else None

    @property
    def is_mxfp4(self) -> bool:
        """Whether the routed experts are packed as MXFP4."""
        return self.quant_format == "mxfp4-pack-quantized" or self.quant_method == "mxfp4"

    @property
    def block_size(self) -> int | None:
        """Draft block of a DSPARK/DFLASH draft (tokens proposed per step), or None."""
        section = self.raw.get("dflash_config")
        for source in (self.raw, section if isinstance(section, Mapping) else {}):
            value = source.get("block_size")
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1024:
                return value
        return None


def _declares_fp8_kv(section: Mapping[str, Any]) -> bool:
    """Whether a quantization section declares an FP8 KV cache: ModelOpt's name for it, or a scheme of 8-bit floats."""
    inner = section.get("quantization")
    for part in (section, inner if isinstance(inner, Mapping) else {}):
        if str(part.get("kv_cache_quant_algo") or "").upper() == "FP8":
            return True
        scheme = part.get("kv_cache_scheme")
        if isinstance(scheme, Mapping) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
            return True
    return False


def known_config(path: str) -> ModelConfig:
    """The config of a catalogued model, by hub id or local directory; raises UnusableInput when unknown."""
    found = find(path)
    return ModelConfig(path, found.model.raw, found.model, found.assumption)
