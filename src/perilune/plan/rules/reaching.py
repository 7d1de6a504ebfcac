"""One set of flags that admits what is asked, or the most that flags can: tried, and told with what it admits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from perilune.plan.deployment import Workload
from perilune.plan.display import band_text, counted
from perilune.plan.memory import Demand, Ledger, NoticeKind, split_for
from perilune.plan.memory.ledger import Range
from perilune.plan.memory.levers import LEVERS
from perilune.plan.rules.edits import Edit, apply_edits, begun, edits_between
from perilune.plan.rules.refusals.remedies import attention_groups
from perilune.plan.rules.splitting import (
    LIMIT,
    PIN,
    RATIO,
    asked_requests,
    best_split,
    better_split,
    has_spare,
    ratio_edits,
    running,
    split_edits,
)
from perilune.plan.rules.subject import Subject, sized
from perilune.plan.server import Server

ASSUMED = Workload(8192, 1024)  # of a request where no length is asked about: the page's own load
SPLITTING = frozenset({PIN, RATIO, LIMIT})
EXPERIMENTAL = "skip-lock"  # answers under it are not validated
OF_A_PAIR = frozenset({"kv-fp8", "state-bf16"})  # levers that the other role must pull as well
SLOW_VERIFY = "state-bf16"  # verification leaves its fused kernel
STRAINED = frozenset({NoticeKind.OVERCOMMITTED, NoticeKind.HEADROOM})


@dataclass(frozen=True, slots=True)
class Reached:
    """A server split for a demand: its ledger, and the requests of the demand's length that run on it."""

    server: Server
    found: Ledger
    runs: int


def reach(s: Subject, asked: int, admitted: int) -> tuple[str, tuple[Edit, ...]]:
    """The flags with which `asked` requests run instead of `admitted`, as edits, and in words with what runs then.

    Without a request length that of the page is taken. No words where a split alone does it; no edits where no
    flags let more run.
    """
    load = s.workload if s.workload.length else ASSUMED
    best = _best(s, asked, load)
    if best.runs < asked:
        best = max(best, _fewer_groups(s, asked, load), key=lambda reached: reached.runs)
    assumed = "" if load is s.workload else f" ({load.length:,} tokens are taken for each)"
    if best.runs <= admitted:
        return f"No flags admit more requests{assumed} on this hardware: use more GPUs per server.", ()
    edits = edits_between(s.known, best.server)
    if best.runs >= asked and load is s.workload and {edit.name for edit in edits} <= SPLITTING:
        return "", edits
    rest = "" if best.runs >= asked else ", the most that flags admit on this hardware"
    band = _band(best, load)
    within = "" if band is None else f" (within the error band: {band_text(band.low, band.high, boots=band.boots)})"
    return (
        f"{begun(edits)}: then {counted(best.runs, 'request')}{assumed} {_run(best.runs)} at once{within}{rest}.",
        edits,
    )


def more_requests(s: Subject) -> tuple[Edit, ...] | None:
    """The edits for more requests than run, as many as are asked for or fit; None where no more are wanted."""
    inputs = s.ledger.inputs
    if better := better_split(s):
        return reach(s, better[1], better[0])[1]
    asked, (now, _) = asked_requests(s), running(s.ledger, s.workload)
    if asked is None or inputs is None or asked // inputs.attn_dp * inputs.attn_dp <= now:
        return None
    return reach(s, asked, now)[1]


def _best(s: Subject, asked: int, load: Workload) -> Reached:
    """The server with the cheapest levers that let `asked` requests of `load` run, or the most of them."""
    plain, best = s.known, _split(s, s.known, s.ledger, asked, load)
    for pull in _levers(s):
        if best.runs >= asked:
            break
        pulled = pull(plain)
        tried = _split(s, pulled, sized(pulled, s.ledger), asked, load)
        if tried.runs > best.runs and not _strains(tried.found, best.found):
            plain, best = pulled, tried
    return best


def _fewer_groups(s: Subject, asked: int, load: Workload) -> Reached:
    """The server with less attention DP, whose groups each keep the attention's weights and KV whole, or without.

    Of the sizes by halves, the first with which `asked` requests run, else the one with which most do.
    """
    best, size = Reached(s.known, s.ledger, 0), int(s["attn_dp_size"] or 1)
    for n in range(1, size.bit_length()):
        fewer = attention_groups(s.known, size >> n)
        tried = _split(s, fewer, sized(fewer, s.ledger), asked, load)
        if tried.runs > best.runs:
            best = tried
        if best.runs >= asked:
            break
    return best


def _levers(s: Subject) -> Iterator[Callable[[Server], Server]]:
    """What may be changed for the sake of capacity alone, the cheapest first."""
    if s.speculates:
        yield lambda server: server.set("--enable-linear-replayssm-spec", None)
    left_out = {EXPERIMENTAL, *(OF_A_PAIR if s.role != "unified" else ()), *((SLOW_VERIFY,) if s.speculates else ())}
    for lever in sorted(LEVERS, key=lambda lever: lever.cost):
        if lever.id not in left_out:
            yield lever.apply


def _run(number: int) -> str:
    return "runs" if number == 1 else "run"


def _band(reached: Reached, load: Workload) -> Range | None:
    """Requests of the load over the whole server at both ends of the prediction, where they differ."""
    inputs = reached.found.inputs
    if inputs is None or load.isl is None or load.osl is None:
        return None
    band = reached.found.workload_range(load.isl, load.osl)
    if band is None or band.low == band.high:
        return None
    return replace(band, low=band.low * inputs.attn_dp, high=band.high * inputs.attn_dp)


def _split(s: Subject, server: Server, found: Ledger, asked: int, load: Workload) -> Reached:
    """A server with its memory split for `asked` requests, or for the most that it can run."""
    inputs = found.inputs
    if inputs is None or not found.boots or load.length is None:
        return Reached(server, found, 0)
    wanted = split_for(inputs, Demand(asked, load.length))
    if not wanted.admitted or not has_spare(inputs, wanted):
        wanted = best_split(inputs, load.length)
    pinned = _reached(s, server, split_edits(server, found, wanted), load)
    band = _band(pinned, load)
    if band is None or band.boots or not wanted.ratios:
        return pinned
    by_ratio = _reached(s, server, ratio_edits(server, wanted), load)
    safer = _band(by_ratio, load)
    return by_ratio if by_ratio.runs >= min(pinned.runs, asked) and (safer is None or safer.boots) else pinned


def _reached(s: Subject, server: Server, edits: Iterable[Edit], load: Workload) -> Reached:
    split = apply_edits(server, edits)
    after = sized(split, s.ledger)
    return Reached(split, after, running(after, load)[0] if after.boots else 0)


def _strains(after: Ledger, before: Ledger) -> bool:
    """Whether the pools take what graphs and activations need, and more of it than before."""
    strained = any(notice.kind in STRAINED for notice in after.notices)
    return strained and (after.headroom_bytes or 0) < (before.headroom_bytes or 0)
