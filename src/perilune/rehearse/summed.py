"""A run that is over as an `Outcome`: sketches, counts and timelines of all servers put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from perilune.rehearse.live import Live
from perilune.rehearse.outcome import Counts, Outcome, ReplicaOutcome, Span
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.request import Traffic
from perilune.rehearse.series import series
from perilune.rehearse.tally import Tally
from perilune.rehearse.ticks import seconds

REFUSED: Final = {
    "context_length": "longer than the context",
    "kv_tokens": "longer than what the KV pool ever has free",
    "state_slots": "the pools never have a state slot free",
    "request_limit": "the server runs as many as it may",
    "queue_full": "the queue was full (--max-queued-requests)",
    "retracted": "retracted, and the decode server keeps no backup of their KV",
    "server_lost": "lost with a server that failed",
}
"""Why requests were refused, in words."""


def outcome_of(
    traffic: Traffic,
    replicas: Sequence[Replica],
    tally: Tally,
    in_flight: Iterable[Live],
    *,
    end: int,
    seed: int,
    interrupted: bool,
) -> Outcome:
    """What a run that ended at `end` (ticks) found; `in_flight` have not ended."""
    duration = seconds(end)
    unfinished = sorted(in_flight, key=lambda live: live.index)
    found = list(tally.records or ())
    if tally.records is not None:
        found += [tally.record(live, None, "unfinished") for live in unfinished]
    goodput = {}
    if tally.has_targets:
        ended = tally.completed + tally.rejected
        goodput = {
            "share": tally.good / ended if ended else 0.0,
            "requests_per_second": tally.good / duration if duration else 0.0,
        }
    costs = [replica.costs for replica in replicas]
    return Outcome(
        traffic=traffic.name,
        gpus=sum(replica.engine.gpus for replica in replicas),
        duration_s=duration,
        ttft_s=tally.ttft.distribution(),
        tpot_s=tally.tpot.distribution(),
        itl_s=tally.itl.distribution(),
        e2e_s=tally.e2e.distribution(),
        requests=Counts(tally.completed, tally.rejected, tally.retracted, len(unfinished)),
        admitted_max=tally.admitted_max,
        output_tokens=tally.output_tokens,
        prompt_tokens=tally.prompt_tokens,
        hit_tokens=tally.hit_tokens,
        waits_s={cause: seconds(waited) for cause, waited in sorted(tally.waits.items())},
        basis=min((one.basis for one in costs), key=("borrowed", "fitted", "calibrated").index, default="borrowed"),
        error_band=(min(one.error_band[0] for one in costs), max(one.error_band[1] for one in costs)),
        series=series(
            [replica.chronicle.line for replica in replicas],
            sum(replica.engine.tokens * replica.engine.ranks for replica in replicas),
            sum(replica.engine.slots * replica.engine.ranks for replica in replicas),
            end,
        ),
        replicas=tuple(_replica_outcome(replica, end) for replica in replicas),
        records=tuple(sorted(found, key=lambda record: record.index)),
        notes=(*traffic.notes, *_notes(tally)),
        goodput=goodput,
        interrupted=interrupted,
        seed=seed,
    )


def _notes(tally: Tally) -> list[str]:
    refused = [
        f"{count:,} {'request' if count == 1 else 'requests'} refused: {REFUSED.get(why, why)}."
        for why, count in sorted(tally.why_rejected.items())
    ]
    return refused + [f"{count:,} {what}." for what, count in sorted(tally.remarks.items())]


def _replica_outcome(replica: Replica, end: int) -> ReplicaOutcome:
    engine = replica.engine
    return ReplicaOutcome(
        name=replica.name,
        role=engine.role,
        gpus=engine.gpus,
        admitted_max=replica.admitted_max,
        completed=replica.completed,
        busy_share=replica.chronicle.busy / end if end else 0.0,
        series=series([replica.chronicle.line], engine.tokens * engine.ranks, engine.slots * engine.ranks, end),
        spans=tuple(
            Span(seconds(one.start), seconds(one.end), one.what, one.requests, one.tokens)
            for one in replica.chronicle.stretches
        ),
    )
