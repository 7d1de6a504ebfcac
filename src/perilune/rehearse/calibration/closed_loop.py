"""A measured run, rehearsed as it was measured."""

from __future__ import annotations

from statistics import median

from perilune.facts.timing import Efficiency
from perilune.rehearse.calibration.fit import Seen, Target
from perilune.rehearse.offered import OfferedLoad
from perilune.rehearse.perform import Settings, perform
from perilune.rehearse.timing.basis import Efficient


def simulate(target: Target, efficiency: Efficiency) -> Seen:
    """What the run would show at these efficiencies: exact medians, since a sketch's steps would mislead a fit.

    Nothing where no request is served.
    """
    load = OfferedLoad(
        concurrency=target.concurrency,
        rate=target.rate,
        requests=target.requests,
        isl=target.isl,
        osl=target.osl,
        range_ratio=target.range_ratio,
    )
    mine = Efficient(efficiency, "fitted", (1.0, 1.0), "")
    settings = Settings(
        acceptance_length=target.acceptance,
        profiles={item.pool.platform: mine for item in target.plan.pools},
        records=True,
    )
    found = perform(target.plan, load, settings).outcome
    lives = [(r.arrival_s, r.first_token_s, r.end_s, r.osl) for r in found.records]
    first = [got - came for came, got, _, _ in lives if got is not None]
    between = [(end - got) / (osl - 1) for _, got, end, osl in lives if got is not None and end is not None and osl > 1]
    if not first:
        return Seen(None, None, None)
    return Seen(median(first), median(between) if between else None, found.tokens_per_second_per_gpu)
