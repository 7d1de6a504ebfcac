"""Runs inside the environment of aiperf: what its own readers make of trace files, as JSON.

    python traces_driver.py FORMAT FILE

Media packages that the readers import but never use are stood in for by empty modules.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

UNUSED = ("ffmpeg",)
READERS = {
    "mooncake": ("mooncake_trace", "MooncakeTraceDatasetLoader"),
    "bailian": ("bailian_trace", "BailianTraceDatasetLoader"),
    "burstgpt": ("burst_gpt", "BurstGPTTraceDatasetLoader"),
    "weka": ("weka_trace", "WekaTraceLoader"),
    "tracelab": ("tracelab_trace", "TraceLabTraceDatasetLoader"),
}


class Empty(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


class Finder:
    """Finds the unused packages."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def rows(entry: Any) -> Iterator[dict[str, Any]]:
    """The requests of what a reader returned, sub-agents by name."""
    if not hasattr(entry, "requests"):
        yield {
            "t": entry.timestamp / 1000,
            "isl": entry.input_length,
            "osl": entry.output_length,
            "ids": getattr(entry, "hash_ids", None) or [],
        }
        return
    for request in entry.requests:
        if hasattr(request, "agent_id"):
            yield {"agent": request.agent_id, "requests": list(rows(request))}
        else:
            yield {
                "t": request.t,
                "isl": request.input_length,
                "osl": request.output_length,
                "ids": request.hash_ids,
                "think": request.think_time,
                "api": request.api_time,
            }


def main() -> None:
    """Print the sessions of one file."""
    logging.disable(logging.CRITICAL)
    sys.meta_path.append(Finder())  # type: ignore[arg-type]
    module, name = READERS[sys.argv[1]]
    reader = getattr(importlib.import_module(f"aiperf.dataset.loader.{module}"), name)
    loaded = reader(filename=sys.argv[2], prompt_generator=MagicMock()).load_dataset()
    json.dump([[row for entry in entries for row in rows(entry)] for entries in loaded.values()], sys.stdout)


if __name__ == "__main__":
    main()
