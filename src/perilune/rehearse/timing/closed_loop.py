"""A measured closed loop, replayed with step times: what its medians would be."""

from __future__ import annotations

import math
from statistics import median

from perilune.facts.timing import Efficiency
from perilune.rehearse.ticks import SECOND, TOKEN
from perilune.rehearse.timing.basis import Efficient
from perilune.rehearse.timing.fit import Seen, Target
from perilune.rehearse.timing.server import ServerCosts, costs_of


def simulate(target: Target, efficiency: Efficiency) -> Seen:
    """What the run would show at these efficiencies."""
    costs = costs_of(target.item.ledger, Efficient(efficiency, "fitted", (1.0, 1.0), ""))
    return _waves(target, costs)


def _waves(target: Target, costs: ServerCosts) -> Seen:
    sizing = target.item.ledger.sizing
    cap = sizing.requests if sizing else 0
    chunk = target.item.resolved["chunked_prefill_size"]
    accepted = round(target.acceptance * TOKEN)
    now = 0
    sent = min(target.concurrency, target.requests)
    waiting = [[0, 0] for _ in range(sent)]  # arrival, prefilled
    running: list[list[int]] = []  # first token, context, thousandths generated
    first: list[int] = []
    between: list[float] = []
    while waiting or running:
        if waiting and len(running) < cap:
            left, pairs = chunk, 0
            taken: list[list[int]] = []
            while waiting and left and len(running) + len(taken) < cap:
                head = waiting[0]
                part = min(left, target.isl - head[1])
                pairs += part * head[1] + part * (part + 1) // 2
                head[1] += part
                left -= part
                if head[1] == target.isl:
                    taken.append(waiting.pop(0))
            now += costs.chunk(chunk - left, chunk - left, pairs)
            for head in taken:
                first.append(now - head[0])
                running.append([now, target.isl * TOKEN, TOKEN])
            continue
        count = len(running)
        base, per = costs.decode(count, count)
        steps = max(1, min(math.ceil((target.osl * TOKEN - r[2]) / accepted) for r in running))
        held = sum(r[1] for r in running)
        now += steps * base + per * (steps * held + accepted * count * (steps * (steps - 1) // 2))
        for r in running:
            r[1] += accepted * steps
            r[2] += accepted * steps
        done = [r for r in running if r[2] >= target.osl * TOKEN]
        running = [r for r in running if r[2] < target.osl * TOKEN]
        between.extend((now - r[0]) / (target.osl - 1) for r in done)
        fresh = min(len(done), target.requests - sent)
        sent += fresh
        waiting.extend([now, 0] for _ in range(fresh))
    tokens = target.requests * (target.isl + target.osl)
    return Seen(median(first) / SECOND, median(between) / SECOND, tokens / (now / SECOND) / target.item.pool.gpus)
