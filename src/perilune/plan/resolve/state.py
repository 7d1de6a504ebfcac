"""The working state of one resolution, and the frozen value it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from perilune.facts.hardware import Platform
from perilune.plan.model.config import ModelConfig

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "y"})
FALSE_WORDS: Final = frozenset({"0", "false", "no", "n"})
FALLBACKS: Final[Mapping[str, Any]] = {
    "enable_tf32_matmul": False,
    "swa_full_tokens_ratio": 0.8,
    "mamba_full_memory_ratio": 0.9,
    "mm_enable_dp_encoder": False,
}
"""What a field that is still unset at the end reads as (`Arg.fallback` of SGLang 0.5.23).

While resolution runs, such a field reads None: steps tell an unset option from a default."""


class Rejected(Exception):
    """SGLang refuses this configuration. `message` is its error, such as `ValueError: ...`.

    `stage` is where: `parse` (argument parser), `resolve` (resolution pipeline), `check`
    (`check_server_args`) or `pools` (pool sizing, after the process has started).
    """

    def __init__(self, message: str, stage: str = "resolve") -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage


class Rewrite(msgspec.Struct, frozen=True):
    """One value that the engine changes or fills in. `before` is what was written or the default."""

    field: str
    before: Any
    after: Any
    reason: str


@dataclass(frozen=True, slots=True)
class EngineModel:
    """The model configuration as the engine builds it: once, from the options known at that moment."""

    quantization: str | None  # the engine's method name, such as `compressed-tensors`
    dtype: str  # bfloat16 | float16 | float32
    context_length: int  # tokens
    is_multimodal: bool  # by architecture, unless text-only serving was chosen


@dataclass(slots=True)
class Resolution:
    """What has been decided so far. Steps read with `r["field"]` and write with `r.set(...)`.

    Field names are SGLang's own (`tp_size`, `page_size`, ...). A read gives the last decision, or what
    the user wrote, or the parser's default, exactly as the engine's own live view does. `written` keeps
    the values from before the first step.
    """

    values: dict[str, Any]
    given: frozenset[str]
    env: dict[str, str]
    platform: Platform
    model: ModelConfig
    draft: ModelConfig | None = None
    rewrites: list[Rewrite] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    written: Mapping[str, Any] = field(init=False)
    engine_model: EngineModel | None = None  # read it with `model_config.engine_model(r)`

    def __post_init__(self) -> None:
        self.written = dict(self.values)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def set(self, name: str, value: Any, reason: str) -> None:
        """Decide `name`; a real change is recorded with the reason a user would want to read."""
        before = self.values[name]
        self.values[name] = value
        if before != value or type(before) is not type(value):
            self.rewrites.append(Rewrite(name, before, value, reason))

    def warn(self, message: str) -> None:
        """Record a warning that the engine prints at start-up."""
        self.warnings.append(message)

    def reject(self, message: str, error: str = "ValueError") -> Rejected:
        """Build the rejection `error: message`; use as `raise r.reject(...)`."""
        return Rejected(f"{error}: {message}")

    def flag_env(self, name: str, default: bool = False) -> bool:
        """Read a boolean environment variable as the engine does; a word it does not know is the default."""
        word = self.env.get(name, "").lower()
        return word in TRUE_WORDS or (default and word not in FALSE_WORDS)

    def int_env(self, name: str, default: int) -> int:
        """Read a whole-number environment variable as the engine does; anything else is the default."""
        try:
            return int(self.env[name])
        except (KeyError, ValueError):
            return default

    def fill_fallbacks(self) -> None:
        """Give the fields that nobody decided the values the engine falls back to."""
        for name, value in FALLBACKS.items():
            if self.values.get(name) is None:
                self.set(name, value, "The engine's default.")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What SGLang makes of a command line on a platform: accepted or not, every field, every rewrite."""

    accepted: bool
    error: str | None
    stage: str
    values: Mapping[str, Any]
    given: frozenset[str]
    env: Mapping[str, str]
    platform: Platform
    model: ModelConfig
    draft: ModelConfig | None
    rewrites: tuple[Rewrite, ...]
    warnings: tuple[str, ...]
    engine_model: EngineModel | None = None  # None when it was rejected before the engine read the config

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def flag_env(self, name: str) -> bool:
        """Whether a boolean environment variable is on, as the engine reads it; one that is not set is off."""
        return self.env.get(name, "").lower() in TRUE_WORDS
