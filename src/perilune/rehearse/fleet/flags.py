"""The command that starts the router, as far as it decides where requests go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, cast

from perilune.errors import UnusableInput
from perilune.rehearse.fleet.policies import DEFAULT_POLICY, POLICIES, CacheAwareSettings, PolicyName

WHERE: Final = "router"
CACHE_AWARE: Final = {
    "--cache-threshold": float,
    "--balance-abs-threshold": int,
    "--balance-rel-threshold": float,
    "--eviction-interval-secs": int,
    "--max-tree-size": int,
}


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """The policy for each pool (`decode` is that of unified servers), and the flags of `cache_aware`."""

    prefill: PolicyName = DEFAULT_POLICY
    decode: PolicyName = DEFAULT_POLICY
    cache_aware: CacheAwareSettings = field(default_factory=CacheAwareSettings)


def router_settings(argv: Sequence[str] | None) -> RouterSettings:
    """What a planned router's command says; the router's defaults where it says nothing, or there is none.

    Raises UnusableInput for a policy that is not modelled and for a number that is none.
    """
    given = _flags(argv or ())
    common = given.get("--policy", DEFAULT_POLICY)
    prefill = _policy(given.get("--prefill-policy", common))
    decode = _policy(given.get("--decode-policy", common))
    numbers: dict[str, Any] = {
        flag[2:].replace("-", "_"): _number(flag, given[flag], kind)
        for flag, kind in CACHE_AWARE.items()
        if flag in given
    }
    return RouterSettings(prefill, decode, CacheAwareSettings(**numbers))


def _flags(argv: Sequence[str]) -> Mapping[str, str]:
    """The value after every flag, given as one word or as two; the last one counts, as for argparse."""
    found: dict[str, str] = {}
    for word, after in pairwise([*argv, ""]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            found[flag] = value if equals else after
    return found


def _policy(name: str) -> PolicyName:
    if name not in POLICIES:
        raise UnusableInput(
            f"The router policy {name[:40]!r} is not modelled.", where=WHERE, fix=f"Known: {' '.join(POLICIES)}."
        )
    return cast(PolicyName, name)


def _number(flag: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise UnusableInput(f"{text[:40]!r} is no value of {flag}.", where=WHERE)
    return number
