"""The five capacity levers of the Kimi-K3 page, each tried on the plan at hand: resolved again, sized again.

Nothing is estimated: a lever's effect is the difference between two ledgers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from perilune.errors import UnusableInput
from perilune.plan.display import engine_words
from perilune.plan.memory.ledger import Ledger, ledger
from perilune.plan.memory.notices import NoticeKind
from perilune.plan.memory.pools import rest_gib
from perilune.plan.memory.predict import Measured
from perilune.plan.memory.split import Demand, Split, most_requests, split_for
from perilune.plan.resolve import resolve
from perilune.plan.server import Server

SKIP_LOCK = "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"
PAGE = "Kimi-K3 page of the SGLang cookbook, capacity levers"
EXPERIMENTAL = 4
ROUNDING = 0.01  # a share of the tokens that whole slots and pages can move either way


@dataclass(frozen=True, slots=True)
class Lever:
    """One lever. `cost` orders them: 0 costs nothing but head-room, the highest is experimental."""

    id: str
    written: str  # the flag or variable as one writes it
    says: str  # what the page promises
    cost: int
    apply: Callable[[Server], Server]

    @property
    def experimental(self) -> bool:
        """Whether the page puts it under validation."""
        return self.cost == EXPERIMENTAL

    @property
    def named(self) -> str:
        """Its short name and what one writes for it."""
        return f"{self.id} ({self.written})"


def _flag(name: str, value: str) -> Callable[[Server], Server]:
    return lambda server: server.set(name, value)


LEVERS = (
    Lever(
        "lazy",
        "--mamba-radix-cache-strategy extra_buffer_lazy",
        "4 state slots per request instead of 5",
        1,
        _flag("--mamba-radix-cache-strategy", "extra_buffer_lazy"),
    ),
    Lever(
        "state-bf16",
        "--mamba-ssm-dtype bfloat16",
        "about half the state bytes",
        3,
        _flag("--mamba-ssm-dtype", "bfloat16"),
    ),
    Lever(
        "kv-fp8",
        "--kv-cache-dtype fp8_e4m3",
        "half the KV bytes per token",
        2,
        _flag("--kv-cache-dtype", "fp8_e4m3"),
    ),
    Lever(
        "fraction-0.90",
        "--mem-fraction-static 0.90",
        "less kept for graphs and activations",
        0,
        _flag("--mem-fraction-static", "0.90"),
    ),
    Lever(
        "fraction-0.92",
        "--mem-fraction-static 0.92",
        "less kept for graphs and activations",
        0,
        _flag("--mem-fraction-static", "0.92"),
    ),
    Lever(
        "skip-lock",
        f"{SKIP_LOCK}=1",
        "one state slot per request fewer",
        EXPERIMENTAL,
        lambda server: server.with_env({SKIP_LOCK: "1"}),
    ),
)


class Outcome(StrEnum):
    """What trying a lever came to."""

    GAINS = "gains"  # more requests or more KV tokens
    TRADES = "trades"  # more of one, less of the other
    NOTHING = "nothing"
    LOSES = "loses"
    ALREADY = "already"  # the plan has it
    REFUSED = "refused"  # the engine does not boot with it


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a lever is judged by; None where the server does not boot."""

    admitted: int | None  # requests, whole server
    by_state: int | None  # requests the state pool could hold, whole server; None without state
    tokens: int | None  # logical tokens per attention-DP worker
    rest_gib: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """A lever on one plan: before, after, and what else changes with it."""

    lever: Lever
    outcome: Outcome
    before: Sizes
    after: Sizes
    why: str  # why it is refused, already there, or changes nothing; empty when it gains
    changes: tuple[str, ...]  # rewrites and warnings that come with it


@dataclass(frozen=True, slots=True)
class Step:
    """One lever towards a demand: requests of its length admitted by it alone, and with those before it."""

    lever: Lever
    alone: int
    together: int


@dataclass(frozen=True, slots=True)
class Advice:
    """How a demand can be met: by a split of this very plan, or by levers, cheapest first."""

    split: Split
    steps: tuple[Step, ...]

    @property
    def reached(self) -> bool:
        """Whether the plan, with all the steps, admits the demand."""
        most = max([self.split.most, *(step.together for step in self.steps)])
        return self.split.admitted or most >= self.split.demand.concurrency


def try_levers(server: Server, before: Ledger, measured: Measured | None = None) -> tuple[Effect, ...]:
    """The effect of every lever on a plan, in the page's order. `before` is the ledger of `server`."""
    return tuple(_effect(lever, server, before, measured) for lever in LEVERS)


def advise(server: Server, before: Ledger, demand: Demand, measured: Measured | None = None) -> Advice:
    """The splits that admit `demand`, or the cheapest levers in order with what each gains.

    Raises UnusableInput when the plan does not boot or the demand is not positive.
    """
    if not 1 <= demand.concurrency <= 1 << 30 or not 1 <= demand.tokens <= 1 << 40:
        raise UnusableInput(
            f"{demand.concurrency:,} requests of {demand.tokens:,} tokens cannot be asked for.",
            where="--concurrency",
            fix="Give numbers from 1 to a billion.",
        )
    if before.inputs is None:
        raise UnusableInput(f"The plan has no memory to split: {before.error}", where="demand")
    split = split_for(before.inputs, demand)
    if split.admitted:
        return Advice(split, ())
    steps: list[Step] = []
    so_far, most = server, split.most
    for lever in sorted(LEVERS, key=lambda lever: lever.cost):
        alone = _most(_with(lever, server, before, measured), demand)
        tried = lever.apply(so_far)
        together = _most(_ledger(tried, before, measured), demand)
        if together > most:
            steps.append(Step(lever, alone, together))
            so_far, most = tried, together
        if most >= demand.concurrency:
            break
    return Advice(split, tuple(steps))


def _most(found: Ledger, demand: Demand) -> int:
    if found.inputs is None or not found.boots:
        return 0
    return most_requests(found.inputs, demand.tokens) * found.inputs.attn_dp


def _with(lever: Lever, server: Server, before: Ledger, measured: Measured | None) -> Ledger:
    return _ledger(lever.apply(server), before, measured)


def _ledger(server: Server, like: Ledger, measured: Measured | None) -> Ledger:
    was = like.resolved
    return ledger(resolve(server, was.platform, model=was.model, draft=was.draft), measured)


def _effect(lever: Lever, server: Server, before: Ledger, measured: Measured | None) -> Effect:
    old = _sizes(before)
    if _already(lever, server, before):
        return Effect(lever, Outcome.ALREADY, old, old, "The plan has it.", ())
    after = _with(lever, server, before, measured)
    new = _sizes(after)
    if not after.boots:
        return Effect(lever, Outcome.REFUSED, old, new, _refusal(after), ())
    outcome = _outcome(old, new)
    why = _inert(lever, before) if outcome is Outcome.NOTHING else ""
    return Effect(lever, outcome, old, new, why, _changes(lever, before, after))


def _sizes(found: Ledger) -> Sizes:
    sizing, inputs = found.sizing, found.inputs
    if sizing is None or inputs is None or not found.boots:
        return Sizes(None, None, None, None)
    by_state = sizing.slots // inputs.slots_per_request * inputs.attn_dp if sizing.slots is not None else None
    return Sizes(found.admitted, by_state, sizing.logical_tokens, sizing.rest_gib)


def _outcome(old: Sizes, new: Sizes) -> Outcome:
    requests = (new.by_state or new.admitted or 0) - (old.by_state or old.admitted or 0)
    tokens = (new.tokens or 0) - (old.tokens or 0)
    if abs(tokens) <= (old.tokens or 0) * ROUNDING:
        tokens = 0
    if requests == 0 and tokens == 0:
        return Outcome.NOTHING
    if requests >= 0 and tokens >= 0:
        return Outcome.GAINS
    return Outcome.LOSES if requests <= 0 and tokens <= 0 else Outcome.TRADES


def _refusal(after: Ledger) -> str:
    """Why the engine does not boot with it: a pin that outgrows its memory is said, for the engine does not say it."""
    i = after.inputs
    if i is not None and i.given_slots is not None and rest_gib(i) > 0:
        return f"The {i.given_slots:,} pinned state slots do not fit at the fraction of {i.fraction:g} in use."
    return f"{engine_words(after.error or after.allocation_error or '')}."


def _already(lever: Lever, server: Server, before: Ledger) -> bool:
    v = before.resolved.values
    match lever.id:
        case "lazy":
            return bool(v["mamba_radix_cache_strategy"] == "extra_buffer_lazy" and not v["disable_radix_cache"])
        case "state-bf16":
            return bool(v["mamba_ssm_dtype"] in ("bfloat16", "float16"))
        case "kv-fp8":
            return before.terms is not None and before.terms.kv_bytes == 1
        case "skip-lock":
            return before.resolved.env.get(SKIP_LOCK, "").lower() in ("1", "true", "yes", "y")
    wanted = float(lever.written.split()[-1])
    written = float(server.value("--mem-fraction-static") or 0)  # the engine may have lowered it
    return wanted <= max(v["mem_fraction_static"] or 0, written)


def _inert(lever: Lever, before: Ledger) -> str:
    inputs = before.inputs
    if inputs is None or not inputs.hybrid:
        return "The model keeps no recurrent state."
    if inputs.radix_off:
        return "With the radix cache off a request holds one state slot already."
    if lever.id == "skip-lock" and before.resolved["mamba_radix_cache_strategy"] == "no_buffer":
        return "no_buffer needs three slots per request in any case."
    return "The pools hold the same with it."


def _changes(lever: Lever, before: Ledger, after: Ledger) -> tuple[str, ...]:
    speculates = after.resolved["speculative_algorithm"] is not None
    found: list[str] = []
    if lever.id == "state-bf16" and speculates:
        found.append("KDA verification falls back from the fused kernel to Triton.")
    if lever.id == "kv-fp8" and after.resolved["disaggregation_mode"] != "null":
        found.append("Prefill and decode must both have it, or the transfer is refused at connect.")
    if lever.id == "skip-lock":
        found.append("The variable is experimental, under validation.")
    old = {(r.field, repr(r.after)) for r in before.resolved.rewrites}
    for rewrite in after.resolved.rewrites:
        if (rewrite.field, repr(rewrite.after)) not in old:
            found.append(f"{rewrite.field}: {rewrite.before} -> {rewrite.after} ({rewrite.reason})")
    known = {*before.resolved.warnings, *before.warnings}
    told = NoticeKind.STATE_CAP  # by the counts
    new = (*after.resolved.warnings, *(notice.text for notice in after.notices if notice.kind is not told))
    found += [text for text in new if text not in known]
    return tuple(found)
