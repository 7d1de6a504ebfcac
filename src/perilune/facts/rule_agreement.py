"""Where `check` says error although the engine's argument checks accept, and why."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from perilune.facts.load import load


@cache
def beyond_arguments() -> Mapping[str, str]:
    """What stops the server later, by the id of the finding that foretells it."""
    return load("rules/agreement.yaml", dict[str, str])
