"""A Hugging Face `config.json` as the engine reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's configuration: the raw mapping, and what resolution and geometry ask of it."""

    path: str  # the hub id or local path as written
    raw: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """The engine's architecture name, such as `KimiK3ForConditionalGeneration`."""
        return str(self.raw["architectures"][0])

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
