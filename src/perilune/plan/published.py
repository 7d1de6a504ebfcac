"""What was measured of a recipe, and how the command that was measured differs from the one at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, cast

from msgspec.structs import replace

from perilune.facts.measurements import Published, published_caps, published_cards
from perilune.plan.compose import Choice, compose
from perilune.plan.deployment import Pool, Role

ACCEPTANCE: Final = "SGLANG_SIMULATE_ACC_LEN"
"""The variable that pins how many tokens a speculative step yields; a workload's matter, not the command's."""

SERVES: Final = ("serve", "sglang.launch_server")
"""The last word of whatever starts the server; its flags follow."""

ADDRESS: Final = frozenset({"--host", "--port"})
RATIO, LIMIT = "--mamba-full-memory-ratio", "--max-running-requests"

SIZES: Final = frozenset({RATIO, LIMIT, "--max-mamba-cache-size", "--max-total-tokens", "--mem-fraction-static"})
"""Flags that say how many requests are admitted, and nothing of how fast those are."""


def flags_of(command: Sequence[str]) -> dict[str, str]:
    """Flags with what follows them, as text; the words before the first flag under an empty name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in command:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = [value] if value else []
        else:
            found[name].append(word)
    return {name: " ".join(words) for name, words in found.items()}


def differing(
    command: Sequence[str], env: Mapping[str, str], *, cell: str, quant: str, spec: str, added: str = ""
) -> dict[str, str]:
    """Flags and variables that the measured command has otherwise, with what it has: `with --x 3`, `without --y`."""
    flags, variables = _measured(cell, quant, spec, added)
    found = dict(_against(flags, _own_flags(command), " "))
    found |= _against(variables, {name: value for name, value in env.items() if name != ACCEPTANCE}, "=")
    return {name: said for name, said in found.items() if name not in ADDRESS}


def published_of_pool(pool: Pool) -> tuple[Published, ...]:
    """The request cap and the speeds measured of this recipe, each with what the measured command had otherwise.

    None of a command that differs in more than the sizes of its pools.
    """
    found = []
    for published, added in (*published_caps(*_of(pool)), *published_cards(*_of(pool))):
        said = differing(pool.server.argv, pool.server.environment, **_named(pool), added=added)
        if published.caps:
            said.pop(LIMIT, None)  # the cap is the state pool's own
        if said.keys() <= ({RATIO} if published.caps else SIZES):
            found.append(replace(published, differs=tuple(said.values())))
    return tuple(found)


def _of(pool: Pool) -> tuple[str, str, str]:
    return pool.recipe, pool.quant, pool.spec


def _named(pool: Pool) -> dict[str, str]:
    return {"cell": pool.recipe, "quant": pool.quant, "spec": pool.spec}


def _against(measured: Mapping[str, str], mine: Mapping[str, str], sign: str) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys((*measured, *mine)):
        if name not in measured:
            yield name, f"without {name}"
        elif measured[name] != mine.get(name):
            yield name, f"with {name}{sign if measured[name] else ''}{measured[name]}"


@cache
def _measured(cell: str, quant: str, spec: str, added: str) -> tuple[dict[str, str], dict[str, str]]:
    """The flags and the environment that a published run had."""
    hardware, mode, strategy = cell.split("/")
    choice = Choice(hardware=hardware, mode=cast(Role, mode), strategy=strategy, quant=quant, spec=spec)
    server = compose(choice).pools[0].server
    return _own_flags(server.argv) | _own_flags(added.split()), dict(server.env)


def _own_flags(words: Sequence[str]) -> dict[str, str]:
    """The flags of the server alone, whatever starts it."""
    start = max((at + 1 for at, word in enumerate(words) if word in SERVES), default=0)
    flags = flags_of(words[start:])
    flags.pop("", None)
    return flags
