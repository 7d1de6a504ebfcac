"""The working state of one resolution, and the frozen value it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perilune.facts.hardware import Platform
from perilune.plan.model.config import ModelConfig


class Rejected(Exception):
    """SGLang refuses this configuration. `message` is its error, such as `ValueError: ...`.

    `stage` is where: `parse` (argument parser), `resolve` (resolution pipeline), `check`
    (`check_server_args`) or `pools` (pool sizing, after the process has started).
    """

    def __init__(self, message: str, stage: str = "resolve") -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One value that the engine changes or fills in. `before` is what was written or the default."""

    field: str
    before: Any
    after: Any
    reason: str


@dataclass(slots=True)
class Resolution:
    """What has been decided so far. Steps read with `r["field"]` and write with `r.set(...)`.

    Field names are SGLang's own (`tp_size`, `page_size`, ...). A read gives the last decision, or what
    the user wrote, or the parser's default, exactly as the engine's own live view does.
    """

    values: dict[str, Any]
    given: frozenset[str]
    env: dict[str, str]
    platform: Platform
    model: ModelConfig
    draft: ModelConfig | None = None
    rewrites: list[Rewrite] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

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
        """Read a boolean environment variable as the engine reads it (`1`, `true`, `yes`, `y` are true)."""
        raw = self.env.get(name)
        return default if raw is None else raw.strip().lower() in {"1", "true", "yes", "y"}


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

    def __getitem__(self, name: str) -> Any:
        return self.values[name]
