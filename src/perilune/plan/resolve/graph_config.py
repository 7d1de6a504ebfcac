"""The CUDA graph settings of both phases, and the sizes that are captured by default.

Source: SGLang 0.5.23 `model_executor/cuda_graph_config.py` and `arg_groups/cuda_graph_hook.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from perilune.errors import UnusableInput

Phase = Literal["decode", "prefill"]

FULL: Final = "full"
BREAKABLE: Final = "breakable"
DISABLED: Final = "disabled"
BACKENDS: Final = (FULL, BREAKABLE, DISABLED)
PHASES: Final[tuple[Phase, Phase]] = ("decode", "prefill")
MAX_SIZES: Final = 1 << 17
"""More capture sizes than this are refused: the lists would not fit, here or in the engine."""


class PhaseGraph(msgspec.Struct, frozen=True):
    """One phase. Decode sizes count requests, prefill sizes count tokens of a forward pass."""

    backend: str
    max_bs: int | None = None
    bs: tuple[int, ...] | None = None
    max_context_size: int | None = None
    full_prefill_max_req: int | None = None
    full_prefill_prefix_chunk_tokens: int | None = None
    max_seq_len: int | None = None

    def changed_from(self, default: PhaseGraph) -> dict[str, Any]:
        """The settings that differ from `default`, by name."""
        mine = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in mine
            if value != getattr(default, name)
        }


class GraphConfig(msgspec.Struct, frozen=True):
    """Both phases, and which settings the user fixed (`locked`, as (phase, setting) pairs)."""

    decode: PhaseGraph
    prefill: PhaseGraph
    prefill_default: str = DISABLED
    locked: frozenset[tuple[str, str]] = frozenset()

    def with_phase(self, phase: Phase, **changes: Any) -> GraphConfig:
        """A copy with some settings of one phase changed."""
        changed = replace(getattr(self, phase), **changes)
        return replace(self, decode=changed) if phase == "decode" else replace(self, prefill=changed)

    def with_locked(self, settings: Mapping[tuple[Phase, str], Any]) -> GraphConfig:
        """A copy with settings that the user fixed."""
        if not settings:
            return self
        decode = {name: value for (phase, name), value in settings.items() if phase == "decode"}
        prefill = {name: value for (phase, name), value in settings.items() if phase == "prefill"}
        return replace(
            self,
            decode=replace(self.decode, **decode),
            prefill=replace(self.prefill, **prefill),
            locked=self.locked | settings.keys(),
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """What differs from the platform's default, per phase, in the engine's own form."""
        return {
            "decode": self.decode.changed_from(PhaseGraph(FULL)),
            "prefill": self.prefill.changed_from(PhaseGraph(self.prefill_default)),
        }


@cache
def default_graphs(*, cuda: bool) -> GraphConfig:
    """Full decode graphs everywhere; breakable prefill graphs on CUDA only."""
    prefill = BREAKABLE if cuda else DISABLED
    return GraphConfig(PhaseGraph(FULL), PhaseGraph(prefill), prefill_default=prefill)


@lru_cache(maxsize=256)
def prefill_sizes(max_bs: int) -> tuple[int, ...]:
    """Token counts captured for prefill, up to `max_bs`."""
    _cap_sizes(max_bs // 512)
    sizes = (
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, max_bs + 1, 512),
    )
    return tuple(size for size in sizes if size <= max_bs)


@lru_cache(maxsize=256)
def decode_sizes(max_bs: int, *, speculative: bool, padded: bool) -> tuple[int, ...]:
    """Request counts captured for decode, up to and including `max_bs`."""
    if not padded:
        _cap_sizes(max_bs)
        sizes: tuple[int, ...] = tuple(range(1, max_bs + 1))
    elif speculative:
        _cap_sizes(max_bs // 16)
        sizes = (
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, max_bs + 1, 16),
        )
    else:
        _cap_sizes(max_bs // 32)
        sizes = (
            *(1, 2, 4, 8, 12),
            *range(16, 257, 8),
            *range(272, 512, 16),
            *range(512, max_bs + 1, 32),
        )
    captured = tuple(size for size in sizes if size <= max_bs)
    return captured if max_bs in captured else (*captured, max_bs)


def _cap_sizes(count: int) -> None:
    if count > MAX_SIZES:
        raise UnusableInput(
            f"A CUDA graph limit that high would capture more than {MAX_SIZES:,} sizes.",
            where="--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill",
            fix="Lower the limit.",
        )
