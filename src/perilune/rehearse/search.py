"""The cheapest shape on some hardware that meets TTFT and TPOT for a workload, and why the others do not.

Every choice that the catalog allows is planned. A shape is tried with one request alone first: one that misses its
targets then misses them with any number of servers. The others are rehearsed with more and more servers, all shapes of
equal GPUs together, until one meets both targets; what would need more GPUs than that is not tried. Experimental levers
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Final, Literal

from perilune.errors import Refused, UnusableInput
from perilune.facts.hardware import platform
from perilune.plan.compose import recipes
from perilune.plan.deployment import Deployment
from perilune.plan.display import counted, shape_text
from perilune.plan.memory.levers import Outcome
from perilune.plan.planned import Plan, PlannedPool, plan
from perilune.rehearse.booting import corrected, no_boot
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.report.text import short_time
from perilune.rehearse.sweep.grid import NO_LEVER, Point, Servers
from perilune.rehearse.sweep.parallel import each_done
from perilune.rehearse.sweep.rehearsed import Result, rehearsed

Percentile = Literal["p50", "p90", "p99"]

BIGGER: Final = "more GPUs needed than the winner has"
SPARE: Final = "enough admitted without the lever"

MOST_GPUS: Final = 4096
ALONE: Final = 4
"""Requests, one after another, that tell what a shape can do at best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A workload in a closed loop, its targets in seconds at a percentile, and the GPUs that may be used."""

    load: OfferedLoad
    ttft_s: float | None
    tpot_s: float | None
    percentile: Percentile
    gpus: int

    def __post_init__(self) -> None:
        if self.ttft_s is None and self.tpot_s is None:
            raise UnusableInput("No target was given.", where="--search", fix="Give --ttft-ms, --tpot-ms or both.")
        if self.load.concurrency is None:
            raise UnusableInput("How many requests at once?", where="--search", fix="Give --concurrency N.")
        if not 1 <= self.gpus <= MOST_GPUS:
            raise UnusableInput(f"A budget is 1 to {MOST_GPUS:,} GPUs.", where="--gpus")

    @property
    def targets(self) -> tuple[tuple[str, str, float], ...]:
        """Name, member of a result, and most seconds, of each target."""
        given = (("TTFT", "ttft_s", self.ttft_s), ("TPOT", "tpot_s", self.tpot_s))
        return tuple((name, member, most) for name, member, most in given if most is not None)

    @property
    def concurrency(self) -> int:
        """Requests at once."""
        return self.load.concurrency or 0


class Verdict(StrEnum):
    """What came of a shape."""

    MEETS = "meets the targets"
    NO_BOOT = "does not boot"
    NOT_MODELLED = "cannot be rehearsed"
    TOO_BIG = "over the budget"
    TOO_FEW = "admits too few"
    TOO_SLOW = "too slow"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Judged:
    """A shape with so many servers, what came of it, and why. `result` is there when it was rehearsed."""

    shape: Shape
    servers: Servers
    verdict: Verdict
    why: str
    result: Result | None = None
    miss: float = 0.0  # by how much, as a share of what is asked

    @property
    def gpus(self) -> int:
        """Of all servers."""
        return self.shape.gpus(self.servers)

    @property
    def deployment(self) -> Deployment:
        """The deployment with so many servers in its pools."""
        counts: Mapping[str, int | None] = {
            "unified": self.servers.unified,
            "prefill": self.servers.prefill,
            "decode": self.servers.decode,
        }
        found = self.shape.plan.deployment
        return replace(found, pools=tuple(replace(pool, replicas=counts[pool.role] or 1) for pool in found.pools))


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One allowed choice, planned; every pool with one server."""

    point: Point
    plan: Plan
    without: Shape | None = None  # the same without its lever

    @property
    def verified(self) -> bool:
        """Whether somebody published a run of every pool's very command."""
        as_published = self.point.lever == NO_LEVER and not self.point.corrected
        return as_published and all(item.pool.verification == "verified" for item in self.plan.pools)

    @property
    def name(self) -> str:
        """What was chosen, in words, and the parallel widths of each pool."""
        choice = self.point.choice
        words = [str(choice[axis]) for axis in ("strategy", "prefill_strategy", "preset", "quant") if axis in choice]
        words += [f"spec {choice['spec']}"] if choice.get("spec", "none") != "none" else []
        words += ["corrected"] if self.point.corrected else []
        words += [f"with {self.point.lever}"] if self.point.lever != NO_LEVER else []
        shapes = (shape_text(item.resolved.values) for item in self.plan.pools)
        return f"{choice['mode']} {', '.join(words)} ({' + '.join(shapes)})"

    @property
    def unit(self) -> str:
        """What is counted as a GPU: a GPU, a die or a card."""
        return platform(self.plan.pools[0].pool.platform).unit

    def gpus(self, servers: Servers) -> int:
        """Of so many servers."""
        if servers.unified is not None:
            return self.plan.pools[0].pool.gpus * servers.unified
        sizes = {item.pool.role: item.pool.gpus for item in self.plan.pools}
        return sizes["prefill"] * (servers.prefill or 0) + sizes["decode"] * (servers.decode or 0)

    def admits(self, servers: Servers) -> int:
        """Requests that so many servers run at once; with two roles, those that decode."""
        answering, number = self._answering(servers)
        return (answering.ledger.admitted or 0) * number

    def sizes(self, budget: int) -> Iterator[Servers]:
        """Every number of servers within a budget of GPUs."""
        if len(self.plan.pools) == 1:
            yield from (Servers(unified=number) for number in range(1, budget // self.plan.pools[0].pool.gpus + 1))
            return
        sizes = {item.pool.role: item.pool.gpus for item in self.plan.pools}
        for prefill in range(1, budget // sizes["prefill"] + 1):
            left = budget - prefill * sizes["prefill"]
            yield from (Servers(prefill=prefill, decode=decode) for decode in range(1, left // sizes["decode"] + 1))

    def alone(self) -> Point:
        """One request at a time on one server of each role."""
        load = replace(self.point.load, concurrency=1, requests=ALONE)
        return replace(self.point, load=load, servers=self.one)

    @property
    def one(self) -> Servers:
        """One server of each role."""
        return Servers(unified=1) if len(self.plan.pools) == 1 else Servers(prefill=1, decode=1)

    def _answering(self, servers: Servers) -> tuple[PlannedPool, int]:
        pools = {item.pool.role: item for item in self.plan.pools}
        if "unified" in pools:
            return pools["unified"], servers.unified or 1
        return pools["decode"], servers.decode or 1


@dataclass(frozen=True, slots=True)
class Found:
    """The winner, None when no shape meets the targets, and every shape at its last try, the winner first."""

    winner: Judged | None
    judged: tuple[Judged, ...]
    rehearsals: int


def search(
    base: Point,
    wanted: Wanted,
    *,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """Search the choices of `base`'s hardware that agree with what `base` has already chosen.

    `progress` is told how many rehearsals are done. The number of `jobs` changes nothing in what is found.
    """
    tell = progress or (lambda done: None)
    done = 0

    def all_of(points: Sequence[Point]) -> list[Result]:
        nonlocal done
        results: dict[int, Result] = {}
        for index, result in each_done(rehearsed, points, jobs):
            results[index] = result
            done += 1
            tell(done)
        return [results[index] for index in range(len(points))]

    last: dict[Shape, Judged] = {}
    able: list[Shape] = []
    shapes = list(_shapes(base, wanted))
    for shape in shapes:
        judged = _at_sight(shape, wanted)
        if judged is None:
            able.append(shape)
        else:
            last[shape] = judged
    for shape, result in zip(able, all_of([shape.alone() for shape in able]), strict=True):
        missed, by = _missed(result, wanted)
        if missed:
            refused = "refused" in result
            verdict, why = (
                (Verdict.NOT_MODELLED, missed) if refused else (Verdict.TOO_SLOW, f"even one request alone: {missed}")
            )
            last[shape] = Judged(shape, shape.one, verdict, why, None if refused else result, by)
    able = [shape for shape in able if shape not in last]
    winner = None
    for gpus, tries in _by_gpus(able, wanted.gpus):
        enough = []
        for shape, servers in tries:
            admitted = shape.admits(servers)
            if admitted < wanted.concurrency:
                why = f"{admitted:,} of {wanted.concurrency:,} on {counted(gpus, shape.unit)}"
                last[shape] = Judged(shape, servers, Verdict.TOO_FEW, why, miss=1 - admitted / wanted.concurrency)
            elif shape.without is None or shape.without.admits(servers) < wanted.concurrency:
                enough.append((shape, servers))
        results = all_of([replace(shape.point, servers=servers) for shape, servers in enough])
        level = [_judged(*tried, result, wanted) for tried, result in zip(enough, results, strict=True)]
        for judged in level:
            if judged.shape not in last or judged.verdict is Verdict.MEETS or last[judged.shape].gpus < gpus:
                last[judged.shape] = judged
        winner = _best([judged for judged in level if judged.verdict is Verdict.MEETS])
        if winner is not None:
            break
    for shape in able:
        if shape not in last:
            lever = shape.without is not None and (winner is None or shape.gpus(shape.one) <= winner.gpus)
            last[shape] = Judged(shape, shape.one, Verdict.NOT_TRIED, SPARE if lever else BIGGER)
    order = list(Verdict)
    rest = sorted(
        (last[shape] for shape in shapes if winner is None or shape is not winner.shape),
        key=lambda judged: (order.index(judged.verdict), judged.miss, *_rank(judged)),
    )
    return Found(winner, (*(() if winner is None else (winner,)), *rest), done)


def _shapes(base: Point, wanted: Wanted) -> Iterator[Shape]:
    """Every allowed choice, planned, and its variant that boots where it would not.

    With levers where one server admits too few and the lever helps.
    """
    seen: set[tuple[object, ...]] = set()
    for choice in _choices(base):
        point = replace(base, choice={**base.choice, **choice})
        try:
            deployment = point.deployment()
        except Refused:
            continue
        key = tuple((pool.role, pool.server.argv, tuple(pool.server.env)) for pool in deployment.pools)
        if key in seen:
            continue
        seen.add(key)
        shape = Shape(point, plan(deployment))
        yield shape
        if no_boot(shape.plan) is not None:
            shape = _planned(replace(point, corrected=True))
            if no_boot(shape.plan) is not None:
                continue
            yield shape
        if shape.admits(shape.one) < wanted.concurrency:
            yield from _with_levers(shape)


def _with_levers(shape: Shape) -> Iterator[Shape]:
    answering = next(item for item in shape.plan.pools if item.pool.role in ("unified", "decode"))
    for effect in answering.levers:
        gains = (effect.after.admitted or 0) > (effect.before.admitted or 0)
        if gains and not effect.lever.experimental and effect.outcome in (Outcome.GAINS, Outcome.TRADES):
            yield _planned(replace(shape.point, lever=effect.lever.id), shape)


def _planned(point: Point, without: Shape | None = None) -> Shape:
    """The shape of a point, corrected where that was asked for."""
    made = plan(point.deployment())
    return Shape(point, corrected(made)[0] if point.corrected else made, without)


def _choices(base: Point) -> Iterator[dict[str, str | int]]:
    """What can be chosen on the hardware, beyond what was."""
    from perilune.facts.options import presets

    fixed, hardware = base.choice, str(base.choice["hardware"])
    rows = {role: recipes(hardware, role) for role in ("unified", "prefill", "decode")}
    sizes = [None, *((name, gpus) for name in ("peak-throughput", "peak-capacity") for gpus in presets().gpus)]
    offered: list[dict[str, str | int]] = []
    for row in rows["unified"]:
        for quant, spec, size in product(row.quant, row.spec, sizes if row.presets else [None]):
            one: dict[str, str | int] = {"mode": "unified", "strategy": row.strategy, "quant": quant, "spec": spec}
            offered.append(one if size is None else {**one, "preset": size[0], "gpus": size[1]})
    for decode, prefill in product(rows["decode"], rows["prefill"]):
        for quant, spec in product(decode.quant, decode.spec):
            offered.append(
                {
                    "mode": "pd",
                    "strategy": decode.strategy,
                    "prefill_strategy": prefill.strategy,
                    "quant": quant,
                    "spec": spec,
                }
            )
    for choice in offered:
        if all(choice.get(axis, value) == value for axis, value in fixed.items()) and set(fixed) - {"hardware"} <= {
            *choice,
            "hicache",
            "vlm_transport",
        }:
            yield choice


def _at_sight(shape: Shape, wanted: Wanted) -> Judged | None:
    """What needs no rehearsal to be judged."""
    why = no_boot(shape.plan)
    if why is not None:
        return Judged(shape, shape.one, Verdict.NO_BOOT, why)
    if shape.gpus(shape.one) > wanted.gpus:
        return Judged(shape, shape.one, Verdict.TOO_BIG, f"{counted(shape.gpus(shape.one), shape.unit)} at the least")
    return None


def _by_gpus(shapes: Sequence[Shape], budget: int) -> Iterator[tuple[int, list[tuple[Shape, Servers]]]]:
    """Every shape and number of servers, by GPUs, the fewest first."""
    tries: dict[int, list[tuple[Shape, Servers]]] = {}
    for shape in shapes:
        for servers in shape.sizes(budget):
            tries.setdefault(shape.gpus(servers), []).append((shape, servers))
    yield from sorted(tries.items(), key=lambda item: item[0])


def _judged(shape: Shape, servers: Servers, result: Result, wanted: Wanted) -> Judged:
    missed, by = _missed(result, wanted)
    if missed:
        return Judged(
            shape, servers, Verdict.TOO_SLOW, f"on {counted(shape.gpus(servers), shape.unit)} {missed}", result, by
        )
    return Judged(shape, servers, Verdict.MEETS, _met(result, wanted), result)


def _missed(result: Result, wanted: Wanted) -> tuple[str, float]:
    """What a result misses, and by which share of the target at worst; empty when it meets all."""
    if "refused" in result:
        return str(result["refused"]), float("inf")
    if result["requests"]["rejected"]:
        return f"the engine refuses {counted(result['requests']['rejected'], 'request')}", float("inf")
    over = {
        f"{name} {_above(found, most)}": found / most - 1
        for name, member, most in wanted.targets
        if (found := _value(result, member, wanted)) > most
    }
    return " and ".join(over), max(over.values(), default=0.0)


def _above(found: float, most: float) -> str:
    """Both times, with as many figures as tell them apart."""
    told, asked = short_time(found), short_time(most)
    if told == asked:
        told, asked = (f"{seconds * 1000:,.6g} ms" for seconds in (found, most))
    return f"{told}, over {asked}"


def _met(result: Result, wanted: Wanted) -> str:
    high = result["error_band"][1]
    told = []
    for name, member, most in wanted.targets:
        found = _value(result, member, wanted)
        unsure = f" (within the error up to {short_time(found * high)})" if found * high > most else ""
        told.append(f"{name} {short_time(found)}{unsure}")
    return ", ".join(told)


def _value(result: Result, member: str, wanted: Wanted) -> float:
    """A latency at the percentile asked for; of answers of one token there is no TPOT to miss."""
    return float(result[member][wanted.percentile] or 0.0)


def _best(meeting: Sequence[Judged]) -> Judged | None:
    """Of shapes with equal GPUs one that is verified, then the fastest, then one as published, then the first."""
    return min(meeting, key=_rank, default=None)


def _rank(judged: Judged) -> tuple[bool, float, bool]:
    throughput = float((judged.result or {}).get("tokens_per_second_per_gpu", 0.0))
    point = judged.shape.point
    return not judged.shape.verified, -throughput, point.corrected or point.lever != NO_LEVER
