"""How many requests are asked for, how many run, and how the memory is split between state and KV."""

from __future__ import annotations

from perilune.plan.deployment import Workload
from perilune.plan.memory import Demand, Ledger, Split, split_for
from perilune.plan.memory.pools import PoolInputs
from perilune.plan.memory.split import most_requests
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.subject import Subject
from perilune.plan.server import Server

PIN, RATIO, LIMIT = "--max-mamba-cache-size", "--mamba-full-memory-ratio", "--max-running-requests"
WORTH_SAYING = 1.25  # how many times more another split must admit


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
    best = best_split(inputs, length).demand.concurrency
    return None if binds == "asked" or not best or best < now * WORTH_SAYING else (now, best)


def best_split(inputs: PoolInputs, length: int) -> Split:
    """The split for the most requests of `length` tokens that leave every worker a state slot to spare."""
    most = most_requests(inputs, length)
    found = split_for(inputs, Demand(most * inputs.attn_dp, length))
    return found if has_spare(inputs, found) else split_for(inputs, Demand((most - 1) * inputs.attn_dp, length))


def has_spare(inputs: PoolInputs, split: Split) -> bool:
    """Whether the slots of a split can be one more on every worker than its requests take, where they are pinned."""
    if split.slots is None or inputs.radix_off or not split.demand.concurrency:
        return True
    return split.slots.high >= split.slots.low + inputs.attn_dp


def split_edits(server: Server, found: Ledger, split: Split) -> tuple[Edit, ...]:
    """The flags of `server`, whose ledger is `found`, that give each pool what a demand needs: a pin with one spare
    slot a worker, or the limit alone.
    """
    inputs = found.inputs
    if not split.admitted or inputs is None:
        return ()
    edits = [write(LIMIT, split.asked)] if split.asked else []
    if split.slots and (inputs.given_slots is not None or not (inputs.radix_off and inputs.asked is not None)):
        pin = min(split.slots.low + (0 if inputs.radix_off else inputs.attn_dp), split.slots.high)
        edits.append(write(PIN, pin))
        edits += remove(RATIO) if server.has(RATIO) else ()
    return tuple(edits)


def ratio_edits(server: Server, split: Split) -> tuple[Edit, ...]:
    """The flags that split in proportion, so that memory a prediction lacks is missing from both pools alike."""
    if not split.admitted or split.ratios is None:
        return ()
    edits = [write(LIMIT, split.asked)] if split.asked else []
    edits.append(write(RATIO, split.ratios.safest))
    edits += remove(PIN) if server.has(PIN) else ()
    return tuple(edits)
