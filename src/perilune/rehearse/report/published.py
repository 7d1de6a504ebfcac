"""What was measured of the recipe that was rehearsed, and how the command that was measured differs from this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from perilune.facts.measurements import AdmissionCap, Card, Point, measurements
from perilune.plan.compose import Choice, compose
from perilune.plan.deployment import Role
from perilune.rehearse.acceptance import VARIABLE
from perilune.rehearse.report.flags import flags_of

if TYPE_CHECKING:
    from perilune.rehearse.report.rehearsal import PoolFacts, Rehearsal

SERVES: Final = ("serve", "sglang.launch_server")
"""The last word of whatever starts the server; its flags follow."""

ADDRESS: Final = frozenset({"--host", "--port"})

SIZES: Final = frozenset(
    {
        "--mamba-full-memory-ratio",
        "--max-mamba-cache-size",
        "--max-running-requests",
        "--max-total-tokens",
        "--mem-fraction-static",
    }
)
"""Flags that say how many requests are admitted, and nothing of how fast those are."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published measurement of a recipe. `differs` says what the measured command has or lacks against this one."""

    card: Card
    point: Point
    same: bool  # the workload was this one, too
    comparable: bool  # nothing that differs tells in this workload
    differs: tuple[str, ...]


def published_of(run: Rehearsal) -> tuple[Published, ...]:
    """The points of the recipe, those of this very workload first. None where several pools serve."""
    if len(run.pools) != 1:
        return ()
    pool = run.pools[0]
    found = []
    for card in measurements().cards:
        if (card.cell, card.quant, card.spec) != (pool.recipe, pool.quant, pool.spec):
            continue
        flags = _differing(pool, card.cell, card.quant, card.spec, card.added)
        tells = not flags.keys() <= SIZES or (run.load.concurrency or 0) > run.cap
        for point in card.points:
            same = _same_workload(run, card, point)
            found.append(Published(card, point, same, same and not (flags and tells), tuple(flags.values())))
    return tuple(sorted(found, key=lambda one: not one.same))


def published_cap_of(run: Rehearsal) -> int | None:
    """Requests that one server of this very command was seen to admit; None where nobody has published it."""
    for pool in run.pools:
        for cap in measurements().admission_caps:
            if pool.role != "prefill" and _is_of(cap, pool) and not _differing(pool, cap.cell, cap.quant, cap.spec):
                return cap.requests
    return None


def _is_of(cap: AdmissionCap, pool: PoolFacts) -> bool:
    return (cap.cell, cap.quant, cap.spec) == (pool.recipe, pool.quant, pool.spec)


def _same_workload(run: Rehearsal, card: Card, point: Point) -> bool:
    load, method = run.load, measurements().method
    return (
        run.pools[0].replicas == 1
        and not run.settings  # no failures, no encoders
        and load.kind == "closed loop"
        and load.talk is None
        and not load.images
        and (load.isl, load.osl, load.range_ratio) == (method.isl, method.osl, 1)
        and (load.concurrency, load.total) == (point.concurrency, method.prompts_by_concurrency[point.concurrency])
        and card.acceptance_length == _pinned(run)
    )


def _pinned(run: Rehearsal) -> float | None:
    """The one acceptance length of all requests."""
    found = run.acceptance
    return None if found is None or found.mix else found.length


def _differing(pool: PoolFacts, cell: str, quant: str, spec: str, added: str = "") -> dict[str, str]:
    """Flags and variables that the measured command has otherwise, with what it has: `with --x 3`, `without --y`."""
    flags, env = _measured(cell, quant, spec, added)
    mine = _own_flags(pool.command)
    found = dict(_against(flags, mine, " "))
    found |= _against(env, {name: value for name, value in pool.env.items() if name != VARIABLE}, "=")
    return {name: said for name, said in found.items() if name not in ADDRESS}


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
