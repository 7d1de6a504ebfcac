"""Router policies, named as `--policy`, `--prefill-policy` and `--decode-policy` of the SGLang router name them.

The rules and defaults are those of sglang-router 0.3.2 (`sglang_router/router_args.py`; policies in sgl-model-gateway
`src/policies/`). A worker's load is the number of requests the router has sent it that have not ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, Protocol, get_args

from perilune.rehearse.fleet.prefix_tree import PrefixTree
from perilune.rehearse.request import Request
from perilune.rehearse.ticks import SECOND

PolicyName = Literal["cache_aware", "round_robin", "random", "power_of_two"]
POLICIES: Final[tuple[str, ...]] = get_args(PolicyName)
DEFAULT_POLICY: Final[PolicyName] = "cache_aware"

CHARACTERS_PER_TOKEN: Final = 4
"""The router's tree counts characters of the prompt's text, a trace tokens: an assumption, as no trace has the text."""


@dataclass(frozen=True, slots=True)
class CacheAwareSettings:
    """The flags of `cache_aware` and the router's defaults."""

    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    eviction_interval_secs: int = 60
    max_tree_size: int = 2**26  # characters a worker


class Policy(Protocol):
    """Chooses a worker for a request."""

    def pick(self, request: Request, loads: Sequence[int], up: Sequence[int], now: int) -> int:
        """One of the workers `up` (never empty, rising); `loads` holds the load of every worker, `now` is in ticks."""
        ...

    def left(self, worker: int) -> None:
        """The router has dropped a worker: forget what it was sent."""
        ...


class RoundRobin:
    """The workers that are up, in turn."""

    def __init__(self) -> None:
        self._count = 0

    def pick(self, request: Request, loads: Sequence[int], up: Sequence[int], now: int) -> int:
        worker = up[self._count % len(up)]
        self._count += 1
        return worker

    def left(self, worker: int) -> None:
        return


class AnyWorker:
    """Any worker that is up."""

    def __init__(self, random: Random) -> None:
        self._random = random.random

    def pick(self, request: Request, loads: Sequence[int], up: Sequence[int], now: int) -> int:
        return up[int(self._random() * len(up))]

    def left(self, worker: int) -> None:
        return


class PowerOfTwo:
    """The lighter of two different workers drawn at random, the first drawn if they are equal.

    The router compares the token counts that its monitor last fetched from the workers where it has them, and the
    requests in flight otherwise; here it is always the requests in flight, which are never stale.
    """

    def __init__(self, random: Random) -> None:
        self._random = random.random

    def pick(self, request: Request, loads: Sequence[int], up: Sequence[int], now: int) -> int:
        count = len(up)
        if count == 1:
            return up[0]
        first = int(self._random() * count)
        second = (first + 1 + int(self._random() * (count - 1))) % count
        one, other = up[first], up[second]
        return one if loads[one] <= loads[other] else other

    def left(self, worker: int) -> None:
        return


class CacheAware:
    """The worker that was sent the longest prefix of this prompt, unless the loads are too uneven.

    Uneven means that the largest load exceeds the smallest by more than `balance_abs_threshold` and by more than
    `balance_rel_threshold` times. Then, and where at most `cache_threshold` of the prompt has been seen, the worker
    with the smallest load is taken, the first of them. Either way the tree remembers the choice. Prompts without ids
    are like no other: they match nothing, and are left out of the tree.
    """

    def __init__(self, settings: CacheAwareSettings | None = None) -> None:
        self.settings = settings or CacheAwareSettings()
        self.tree = PrefixTree()
        self._interval = self.settings.eviction_interval_secs * SECOND
        self._evict_at = self._interval

    def pick(self, request: Request, loads: Sequence[int], up: Sequence[int], now: int) -> int:
        if len(up) == len(loads):
            light = min(loads)
            lightest = loads.index(light)
            heavy = max(loads)
        else:
            lightest = min(up, key=loads.__getitem__)
            light = loads[lightest]
            heavy = max(loads[worker] for worker in up)
        if not request.blocks:
            return lightest
        width = request.block_tokens
        blocks = request.blocks
        count = -(-request.isl // width)
        if len(blocks) > count:
            blocks = blocks[:count]
        settings = self.settings
        tree = self.tree
        if self._interval and now >= self._evict_at:
            tree.evict(settings.max_tree_size // (CHARACTERS_PER_TOKEN * width))
            self._evict_at = now - now % self._interval + self._interval
        chosen = lightest
        if heavy - light <= settings.balance_abs_threshold or heavy <= light * settings.balance_rel_threshold:
            matched, worker = tree.match(blocks)
            if min(matched * width, request.isl) > settings.cache_threshold * request.isl and worker in up:
                chosen = worker
        tree.insert(blocks, chosen)
        return chosen

    def left(self, worker: int) -> None:
        self.tree.forget(worker)


def policy(name: PolicyName, random: Random, settings: CacheAwareSettings | None = None) -> Policy:
    """A policy by its flag value; `random` is its own stream, `settings` are for `cache_aware`."""
    match name:
        case "cache_aware":
            return CacheAware(settings)
        case "round_robin":
            return RoundRobin()
        case "random":
            return AnyWorker(random)
        case "power_of_two":
            return PowerOfTwo(random)
