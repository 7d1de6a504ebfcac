"""Which split of the memory to advise: the one that admits what is asked, else the best one as a first step."""

from __future__ import annotations

from perilune.plan.deployment import Workload
from perilune.plan.memory import Demand, Ledger, Split, split_for
from perilune.plan.memory.levers import Advice, advise
from perilune.plan.memory.split import most_requests
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.subject import Subject

PIN, RATIO, LIMIT = "--max-mamba-cache-size", "--mamba-full-memory-ratio", "--max-running-requests"
WORTH_SAYING = 1.25  # how many times more another split must admit
ASSUMED_LENGTH = 8192 + 1024  # tokens of a request where no length is asked about: the page's own load


def asked_requests(s: Subject) -> int | None:
    """Requests at once that were asked for, over the whole server; None where nobody asked."""
    inputs = s.ledger.inputs
    return s.workload.concurrency or (inputs.asked if inputs is not None and s.wrote(LIMIT) else None)


def running(found: Ledger, workload: Workload) -> tuple[int, str]:
    """Requests of the length asked about, or of any, that run at once, and which pool or limit binds them."""
    if found.inputs is None or found.sizing is None:
        return 0, ""
    load = found.workload(workload.isl, workload.osl) if workload.isl and workload.osl else None
    if load is None:
        return found.admitted or 0, str(found.sizing.binds)
    return load.admitted * found.inputs.attn_dp, load.binds


def better_split(s: Subject) -> tuple[int, int] | None:
    """Requests that run now and under the best split, where that is far more and nobody asks for a number of them."""
    inputs, length = s.ledger.inputs, s.workload.length
    if inputs is None or not inputs.hybrid or not s.ledger.boots or not length or asked_requests(s) is not None:
        return None
    now, binds = running(s.ledger, s.workload)
    best = most_requests(inputs, length) * inputs.attn_dp
    return None if binds == "asked" or not best or best < now * WORTH_SAYING else (now, best)


def more_requests(s: Subject) -> tuple[Edit, ...] | None:
    """The edits for more requests than run, as many as are asked for or fit; None where no more are wanted."""
    inputs = s.ledger.inputs
    if better := better_split(s):
        return reach(s, better[1], better[0])[1]
    asked, (now, _) = asked_requests(s), running(s.ledger, s.workload)
    if asked is None or inputs is None or asked // inputs.attn_dp * inputs.attn_dp <= now:
        return None
    return reach(s, asked, now)[1]


def reach(s: Subject, asked: int, admitted: int) -> tuple[str, tuple[Edit, ...]]:
    """How `asked` requests are admitted instead of `admitted`, in words and as edits; no words where edits say all.

    Where no split admits them, the edits are those of the best one, and the words say what it admits.
    """
    length = s.workload.length
    advice = advise(s.known, s.ledger, Demand(asked, length or 1), s.measured)
    if advice.split.admitted:
        return "", split_edits(s, advice.split)
    if not length:
        advice = advise(s.known, s.ledger, Demand(asked, ASSUMED_LENGTH), s.measured)
    return _first_step(s, advice, admitted)


def _first_step(s: Subject, advice: Advice, admitted: int) -> tuple[str, tuple[Edit, ...]]:
    asked, length, most, inputs = advice.split.demand.concurrency, s.workload.length, advice.split.most, s.ledger.inputs
    edits: tuple[Edit, ...] = ()
    if inputs is not None and most > admitted:
        edits = split_edits(s, split_for(inputs, Demand(most, length or ASSUMED_LENGTH)))
    assumed = "" if length else f" (for no length is given, requests are taken to have {ASSUMED_LENGTH:,} tokens)"
    parts = [f"No split of this memory admits {asked}{assumed}."]
    if edits:
        parts.append(f"First {', '.join(map(str, edits))}, which admits {most}.")
    elif length:
        parts.append("The present one is the best.")
    if advice.steps:
        steps = ", then ".join(f"{step.lever.written} ({step.together})" for step in advice.steps)
        parts.append(f"Levers, cheapest first, with what each admits: {steps}.")
    if not advice.reached:
        parts.append(f"No split of this hardware admits {asked}.")
    return " ".join(parts), edits


def split_edits(s: Subject, split: Split) -> tuple[Edit, ...]:
    """The flags that give each pool what a demand needs: a pin with one spare slot a worker, or the limit alone."""
    inputs = s.ledger.inputs
    if not split.admitted or inputs is None:
        return ()
    edits = [write(LIMIT, split.asked)] if split.asked else []
    if split.slots and (inputs.given_slots is not None or not (inputs.radix_off and inputs.asked is not None)):
        pin = min(split.slots.low + (0 if inputs.radix_off else inputs.attn_dp), split.slots.high)
        edits.append(write(PIN, pin))
        edits += remove(RATIO) if s.wrote(RATIO) else ()
    return tuple(edits)
