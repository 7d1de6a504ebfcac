"""Which leaf goes first (`--radix-eviction-policy`). Source: sglang/srt/mem_cache/evict_policy.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from perilune.rehearse.radix.node import Node

Rank: TypeAlias = Callable[[Node], int]
"""The lowest goes first. It only ever rises while a node lives, which lets a queue be sorted lazily."""

CLASS: Final = 1 << 100  # above every `used`
PROTECTED_HITS: Final = 2


def rank_of(policy: str, config: Mapping[str, Any] | None = None) -> Rank | None:
    """The order of a policy; None for plain `lru`, which is `Node.used` itself.

    lfu: by hits, then use. slru: nodes hit twice after all others. priority: the answers of a model without state
    before its prompts (requests of a rehearsal have equal priority). tlru: what a conversation of this length can
    lose without its next turn missing its time, before all else.
    """
    if policy == "lru":
        return None
    if policy == "lfu":
        return lambda node: node.hits * CLASS + node.used
    if policy == "slru":
        return lambda node: (node.hits >= PROTECTED_HITS) * CLASS + node.used
    if policy == "priority":
        return lambda node: node.priority * CLASS + node.used
    if policy != "tlru":
        raise ValueError(f"no such --radix-eviction-policy: {policy!r}")
    given = config or {}
    slack = given.get("next_prompt_estimate", 0) - given.get("threshold", 0)
    return lambda node: (node.start < max(node.history + slack, 0)) * CLASS + node.used
