"""What a rehearsal found, in sentences: the same in a terminal and on a page."""

from __future__ import annotations

from perilune.facts.measurements import measurements
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.report.rehearsal import ATTAINMENT, Published, Rehearsal
from perilune.rehearse.report.text import printable, share, short_time
from perilune.rehearse.tally import Targets

BINDS = {"state": "the KDA state pool binds", "kv": "the KV pool binds", "asked": "the request limit binds"}
CAUSES = {
    "state_slots": "state slots",
    "kv_tokens": "KV tokens",
    "request_limit": "the request limit",
    "prefill": "prefill",
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
        f"{f'{pool.role}: ' if several else ''}{count(pool.replicas, 'server')} of "
        f"{count(pool.gpus, 'GPU')}, {pool.shape}"
        for pool in run.pools
    )


def traffic_text(run: Rehearsal) -> str:
    """What was asked of the fleet, in one sentence without its full stop."""
    load = run.load
    start = {
        "closed loop": f"closed loop, {load.concurrency or 0:,} at once",
        "open loop": f"Poisson arrivals, {load.rate or 0:g} requests/s",
        "trace": f"trace {printable(run.outcome.traffic)}{_paced(run)}",
    }[load.kind]
    counted = f", {load.total:,} requests" if load.total is not None else ""
    least = "up to " if load.range_ratio < 1 else ""
    lengths = f" of {least}{load.isl:,} + {load.osl:,} tokens" if load.isl and load.osl else ""
    if load.images:
        lengths += f" and {count(load.images, 'image')} of {load.image_size[0]} × {load.image_size[1]}"
    router = f", router {run.router}" if run.router else ""
    return f"{start}{counted}{lengths}{router}, seed {run.outcome.seed}"


def _paced(run: Rehearsal) -> str:
    if run.load.rate is not None:
        return f" at {run.load.rate:g} requests/s"
    return "" if run.load.concurrency is None else f", {run.load.concurrency:,} at once"


def trust_text(run: Rehearsal) -> str:
    """What the step times rest on and how wide they are, in words."""
    low, high = run.outcome.error_band
    says = f"Step times are {printable(run.basis_says).rstrip('.')}" if run.basis_says else BASES[run.outcome.basis]
    return f"Predicted, not measured. {says}; expect real times {_off(low)} to {_off(high)}."


def _off(factor: float) -> str:
    return f"{share(abs(factor - 1))} {'longer' if factor > 1 else 'shorter'}"


def acceptance_text(run: Rehearsal) -> str:
    """What speculation is taken to yield; empty without speculation."""
    found = run.acceptance
    if found is None:
        return ""
    start = "Assumed: a" if found.assumed else "A"
    return f"{start} speculative step yields {found.length:g} tokens on average ({printable(found.source)})."


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


def count(number: int, noun: str) -> str:
    """`1 server`, `2 servers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def admitted_text(run: Rehearsal) -> str:
    """How many ran at once, what the ledger allows, whether that was felt, and what was seen of the recipe."""
    found = run.outcome
    binds = {BINDS[pool.binds] for pool in run.pools if pool.role != "prefill"}
    reached = f"it was reached: {', '.join(sorted(binds))}" if found.admitted_max >= run.cap else "it was not reached"
    seen = (
        f"; published of this recipe: the state pool admits {run.published_cap:,} a server"
        if run.published_cap is not None
        else ""
    )
    return f"{found.admitted_max:,} at once at most; the ledger's cap is {run.cap:,}, {reached}{seen}"


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
        others.append(f"retracted {count(ended.retracted, 'time')}")
    rest = ", ".join(others) or "none rejected, retracted or unfinished"
    return f"{ended.completed:,} completed in {short_time(found.duration_s)}; {rest}"


def goodput_text(run: Rehearsal) -> str:
    """The share within the SLO and whether that is enough."""
    if run.slo is None:
        return ""
    if run.goodput is None:
        return f"nothing was served within {slo_text(run.slo)}"
    rate = run.outcome.goodput.get("requests_per_second")
    served = f", {rate:,.2f} requests/s" if rate is not None else ""
    verdict = f"the SLO ({share(ATTAINMENT)} of requests) is {'met' if run.slo_met else 'missed'}"
    return f"{share(run.goodput)} within {slo_text(run.slo)}{served}; {verdict}"


def method_text() -> str:
    """How the published figures were measured, in a few words."""
    method = measurements().method
    return f"measured with {method.isl:,} + {method.osl:,} tokens; {method.percentile}"


def against(one: Published, found: Outcome) -> tuple[float, float, float]:
    """Predicted over measured: TTFT, TPOT, throughput per GPU."""
    point = one.point
    return (
        found.ttft_s.p50 * 1000 / point.ttft_ms,
        found.tpot_s.p50 * 1000 / point.tpot_ms,
        found.tokens_per_second_per_gpu / point.tokens_per_s_per_gpu,
    )
