"""What a rehearsal found, in sentences: the same in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterable

from perilune.facts.measurements import measurements
from perilune.plan.display import counted, printable
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.report.published import Published
from perilune.rehearse.report.rehearsal import ATTAINMENT, PoolFacts, Rehearsal
from perilune.rehearse.report.text import rate, share, short_time
from perilune.rehearse.tally import Targets

BINDS = {"state": "the KDA state pool binds", "kv": "the KV pool binds", "asked": "--max-running-requests binds"}
ALIKE = 1.01
STILL = 10
"""Factors: the longest latency over a p90 that it coincides with; the longest gap of an answer over p99 to ask why."""
CAUSES = {
    "state_slots": "state slots",
    "kv_tokens": "KV tokens",
    "request_limit": "the request limit",
    "prefill": "prefill of others",
    "transfer": "transfer",
    "encoder": "the encoder",
    "storage": "the L3 store",
    "no_server": "a server to come back",
}
BASES = {
    "fitted": "Step times are fitted to published measurements of this platform",
    "borrowed": "Nothing is published for this platform: step times are borrowed from the nearest that has it",
    "calibrated": "Step times are calibrated with your own measurements",
}


def title(run: Rehearsal) -> str:
    """The model and the hardware in one line."""
    return f"{run.model} on {run.outcome.gpus} × {run.pools[0].label}"


def pools_text(run: Rehearsal) -> str:
    """Every pool: its servers, their GPUs and shape."""
    several = len(run.pools) > 1
    return "; ".join(
        f"{f'{pool.role}: ' if several else ''}{counted(pool.replicas, 'server')} of "
        f"{counted(pool.gpus, pool.unit)}, {pool.shape}"
        for pool in run.pools
    )


def traffic_text(run: Rehearsal) -> str:
    """What was asked of the fleet, in one sentence without its full stop."""
    router = f", router {run.router}" if run.router else ""
    return f"{_served(run)}{router}, seed {run.outcome.seed}"


def _served(run: Rehearsal) -> str:
    load, one = run.load, "request" if run.load.talk is None else "session"
    if load.trace is not None:
        most = "" if load.requests is None else f", its first {counted(load.requests, 'request')} at most"
        return f"trace {printable(run.outcome.traffic)}{_replayed(load)}{most}"
    if load.concurrency is not None:
        start = f"closed loop of {counted(load.concurrency, one)}"
    elif load.arrival_cv in (None, 1):
        start = f"Poisson arrivals, {_pace(load, one)}"
    else:
        start = f"arrivals with a CV of {load.arrival_cv:g}, {_pace(load, one)}"
    least = "up to " if load.range_ratio < 1 else ""
    lengths = f"of {least}{load.isl or 0:,} input + {least}{load.osl or 0:,} output tokens"
    total = load.total or 0
    if load.talk is not None:
        talk = load.talk
        system = f", after a shared system prompt of {talk.system_tokens:,}" if talk.system_tokens else ""
        system += f" ({talk.system_prompts:,} different ones)" if talk.system_prompts > 1 else ""
        return (
            f"{start}, {total // talk.turns:,} in all, of {counted(talk.turns, 'turn')} {lengths} each{system}, "
            f"think time {short_time(talk.think_s)} on average"
        )
    images = (
        f" and {counted(load.images, 'image')} of {load.image_size[0]} × {load.image_size[1]}" if load.images else ""
    )
    return f"{start}, {total:,} in all, {lengths}{images}"


def _pace(load: OfferedLoad, one: str) -> str:
    return f"{_plain(load.rate or 0)} {one if load.rate == 1 else f'{one}s'}/s"


def _plain(number: float) -> str:
    """A rate as it was given, never as a power of ten."""
    return f"{number:,.0f}" if number == int(number) else f"{number:,.9f}".rstrip("0")


def _replayed(load: OfferedLoad) -> str:
    """What became of a trace's arrivals and prefixes."""
    told = []
    if load.rate is not None:
        told.append(f"Poisson arrivals, {_plain(load.rate)}/s, in place of its own")
    if load.concurrency is not None:
        told.append(f"closed loop of {load.concurrency:,} in place of its arrivals")
    if load.replay is not None:
        told += [f"clock {load.replay.speed:g} times as fast"] if load.replay.speed != 1 else []
        told += ["sorted by arrival"] if load.replay.sort else []
        told += ["tool and system prompts shared"] if load.replay.share_prefix else []
    return "".join(f", {each}" for each in told)


def trust_text(run: Rehearsal) -> str:
    """What the step times rest on and how wide they are, in words."""
    low, high = run.outcome.error_band
    says = f"Step times are {printable(run.basis_says).rstrip('.')}" if run.basis_says else BASES[run.outcome.basis]
    wide = f"Predicted, not measured. {says}; expect real medians {_off(low)} to {_off(high)}"
    unsure = [pool for pool in run.pools if pool.unsure and pool.cap_band and _tells(run, pool)]
    caps = " and ".join(f"{_cap(pool)} on {pool.role} servers" if len(run.pools) > 1 else _cap(pool) for pool in unsure)
    return f"{wide}{f', if as many requests are admitted as here: {caps}' if caps else ''}."


def _tells(run: Rehearsal, pool: PoolFacts) -> bool:
    """Whether fewer requests would have run at the low end of the pool's band, or more at its high end."""
    most = _most(run, pool)
    low, high = pool.cap_band or (pool.cap, pool.cap)
    return most > low or (most >= pool.cap and high > pool.cap)


def _cap(pool: PoolFacts) -> str:
    """What the ledger admits, and within what band."""
    if not pool.unsure or pool.cap_band is None:
        return f"{pool.cap:,}"
    low, high = pool.cap_band
    return f"{pool.cap:,} (within the error of predicted memory {f'{low:,}' if low else 'no boot'} to {high:,})"


def remarks(run: Rehearsal) -> list[str]:
    """What is odd about the latencies, and why: percentiles that coincide, an answer that stood still."""
    found = run.outcome
    e2e, itl = found.e2e_s, found.itl_s
    said = []
    if e2e.count > 1 and e2e.max <= e2e.p90 * ALIKE:
        speculates = run.acceptance is not None and not run.acceptance.mix
        alike, flags = ("length and acceptance", ", --acceptance-mix") if speculates else ("length", "")
        said.append(
            f"E2E, p90 and above coincide, for requests are alike in {alike}; those of real ones lie further apart "
            f"(--random-range-ratio{flags})."
        )
    if itl.count and itl.max > itl.p99 * STILL:
        why = "waiting prompts are prefilled before answers go on"
        if len(run.pools) > 1:
            why = "after its first token it waited for its KV or for a place on a decode server"
        why += ", or the request was retracted" if found.requests.retracted else ""
        why += ", or its server was down" if "failures" in run.settings else ""
        said.append(f"ITL, max: an answer stood still for {short_time(itl.max)}: {why}.")
    return said


def _off(factor: float) -> str:
    return f"{share(abs(factor - 1))} {'longer' if factor > 1 else 'shorter'}"


def acceptance_text(run: Rehearsal) -> str:
    """What speculation is taken to yield; empty without speculation."""
    found = run.acceptance
    if found is None:
        return ""
    if found.mix:
        whole = sum(weight for _, weight in found.mix)
        parts = ", ".join(f"{length:g} for {share(weight / whole)}" for length, weight in found.mix)
        return f"A speculative step yields {parts} of the requests ({found.length:.3g} tokens on average)."
    start = "Assumed: a" if found.assumed else "A"
    return (
        f"{start} speculative step yields {found.length:g} tokens on average, of every request alike "
        f"({printable(found.source)})."
    )


def slo_text(slo: Targets) -> str:
    """The targets, such as `TTFT 2.00 s, TPOT 50.0 ms`."""
    named = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
    return ", ".join(f"{name} {short_time(value)}" for name, value in named if value is not None)


def waits(found: Outcome) -> list[tuple[str, float, float]]:
    """What requests waited for, the longest first: cause, seconds in all, share of all requests' time."""
    total = found.e2e_s.mean * found.e2e_s.count if found.e2e_s.count else 0.0
    base = max(total, sum(found.waits_s.values()))
    ordered = sorted(found.waits_s.items(), key=lambda item: (-item[1], item[0]))
    return [(CAUSES.get(cause, cause.replace("_", " ")), spent, spent / base) for cause, spent in ordered if spent > 0]


def admitted(run: Rehearsal) -> list[tuple[str, str]]:
    """By role: how many requests were on its servers at once, what the ledger allows, and what binds if it was felt.

    The role is empty where there is one pool. Of a prefill pool it is the busiest server, as no more are ever counted.
    """
    several = len(run.pools) > 1
    return [(pool.role if several else "", _admitted(run, pool)) for pool in run.pools]


def _admitted(run: Rehearsal, pool: PoolFacts) -> str:
    if pool.role == "prefill":
        each = pool.cap // pool.replicas
        most = _most(run, pool) // pool.replicas
        return f"at most {most:,} at once on a server; the ledger admits {each:,} there, {_bound(most, each, pool)}"
    most = _most(run, pool)
    seen = f"; published of this command: {run.published_cap:,} a server" if run.published_cap is not None else ""
    return f"at most {most:,} at once; the ledger admits {_cap(pool)}, {_bound(most, pool.cap, pool)}{seen}"


def capacity_text(pool: PoolFacts) -> str:
    """What one pool admits, within what band, and what binds."""
    several = f" on {pool.replicas:,} servers" if pool.replicas > 1 else ""
    return f"It admits {_cap(pool)}{several}: {BINDS[pool.binds]}. Below, the fullest {pool.unit}, in GiB."


def _most(run: Rehearsal, pool: PoolFacts) -> int:
    """Most requests at once in a pool; of a prefill pool on its busiest server, times its servers."""
    if pool.role == "prefill":
        return pool.replicas * max(
            (one.admitted_max for one in run.outcome.replicas if one.role == "prefill"), default=0
        )
    return run.outcome.admitted_max


def _bound(most: int, cap: int, pool: PoolFacts) -> str:
    return f"reached: {BINDS[pool.binds]}" if most >= cap else "not reached"


def requests_text(found: Outcome) -> str:
    """How the requests ended."""
    ended = found.requests
    others = [
        f"{number:,} {word}"
        for number, word in (
            (ended.rejected, "rejected"),
            (ended.unfinished, "unfinished"),
        )
        if number
    ]
    if ended.retracted:
        others.append(f"retracted {counted(ended.retracted, 'time')}")
    rest = ", ".join(others) or "none rejected, retracted or unfinished"
    took = f" in {short_time(found.duration_s)}" if ended.completed else ""
    return f"{ended.completed:,} completed{took}; {rest}"


def goodput_text(run: Rehearsal) -> str:
    """The share within the SLO and whether that is enough."""
    if run.slo is None:
        return ""
    if run.goodput is None:
        return f"nothing was served within {slo_text(run.slo)}"
    good = run.outcome.goodput.get("requests_per_second")
    each = "" if good is None else rate(good)
    served = f", {each} {'request' if each == '1' else 'requests'}/s" if each else ""
    verdict = f"the SLO ({share(ATTAINMENT)} of requests) is {'met' if run.slo_met else 'missed'}"
    return f"{share(run.goodput)} within {slo_text(run.slo)}{served}; {verdict}"


def method_text() -> str:
    """How the published figures were measured, in a few words."""
    method = measurements().method
    return f"{method.isl:,} input + {method.osl:,} output tokens, {method.percentile}"


def differs_text(found: Iterable[Published]) -> str:
    """What the measured command has otherwise, in one sentence; empty where nothing differs."""
    differs = list(dict.fromkeys(each for one in found for each in one.differs))
    return f"Unlike this plan, it was measured {', '.join(differs)}." if differs else ""


def compared(one: Published, found: Outcome) -> bool:
    """Whether the prediction may stand against a measurement."""
    return one.comparable and found.ttft_s.count > 0 and found.tpot_s.count > 0


def output_text(run: Rehearsal) -> str:
    """Tokens a second, per GPU and in all."""
    found = run.outcome
    if not found.output_tokens:
        return "nothing was served"
    each, output = rate(found.tokens_per_second_per_gpu), rate(found.output_tokens_per_second)
    return f"{each} tokens/s per {run.pools[0].unit} (input + output); {output} output/s in all"


def against(one: Published, found: Outcome) -> tuple[float, float, float]:
    """Predicted over measured: TTFT, TPOT, throughput per GPU."""
    point = one.point
    return (
        found.ttft_s.p50 * 1000 / point.ttft_ms,
        found.tpot_s.p50 * 1000 / point.tpot_ms,
        found.tokens_per_second_per_gpu / point.tokens_per_s_per_gpu,
    )
