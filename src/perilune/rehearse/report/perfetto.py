"""A rehearsal in the Chrome trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a server, a thread is what it does, and counters follow its queue and pools. Instants are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from perilune.plan.display import printable
from perilune.rehearse.outcome import ReplicaOutcome, Series, Span
from perilune.rehearse.report import phrases
from perilune.rehearse.report.overtime import busy_by_role, per_second
from perilune.rehearse.report.rehearsal import Rehearsal

FLEET: Final = 1
THREADS: Final = ("prefill", "decode", "transfer", "encode", "down")


def chrome_trace(run: Rehearsal) -> bytes:
    """The JSON document, UTF-8. Equal rehearsals give equal bytes."""
    found = run.outcome
    fleet = _counters(FLEET, found.series, found.duration_s, busy_by_role(found))
    events = [*_process(FLEET, "fleet", 0), *fleet]
    for index, replica in enumerate(found.replicas):
        events += _server(FLEET + 1 + index, index + 1, replica, found.duration_s)
    return msgspec.json.encode(
        {
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {
                "title": printable(phrases.title(run)),
                "traffic": printable(phrases.traffic_text(run)),
                "trust": phrases.trust_text(run),
                "plan": run.plan_id,
            },
        }
    )


def _server(pid: int, order: int, replica: ReplicaOutcome, duration_s: float) -> Iterator[dict[str, Any]]:
    yield from _process(pid, printable(replica.name), order)
    for name in dict.fromkeys(span.what for span in replica.spans):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": _thread(name), "args": {"name": printable(name)}}
    for span in replica.spans:
        yield _slice(pid, span)
    yield from _counters(pid, replica.series, duration_s, {"running": replica.series.running})


def _process(pid: int, name: str, order: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}}


def _slice(pid: int, span: Span) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": printable(span.what),
        "cat": "step",
        "pid": pid,
        "tid": _thread(span.what),
        "ts": _micros(span.start_s),
        "dur": _micros(span.end_s - span.start_s),
        "args": {"requests": span.requests, "tokens": span.tokens},
    }


def _counters(
    pid: int, of: Series, duration_s: float, places: Mapping[str, Sequence[float]]
) -> Iterator[dict[str, Any]]:
    """Each gauge at the start of its bin: the viewer holds a value until the next."""
    prefilled = per_second(of, of.prompt_tokens, duration_s)
    output = per_second(of, of.output_tokens, duration_s)
    for index in range(len(of.running)):
        tracks = {
            "requests": {**{place: held[index] for place, held in places.items()}, "queued": of.queued[index]},
            "pools %": {
                name: used[index] * 100
                for name, used in (("KV tokens", of.kv_used), ("state slots", of.slots_used))
                if used
            },
            "tokens/s": {"prefilled": prefilled[index], "output": output[index]},
        }
        for name, values in tracks.items():
            rounded = {key: round(value, 3) for key, value in values.items()}
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": _micros(index * of.bin_s), "args": rounded}


def _thread(what: str) -> int:
    return THREADS.index(what) + 1 if what in THREADS else len(THREADS) + 1


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 3)
