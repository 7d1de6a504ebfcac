"""What a run adds up to, while it runs: latencies in sketches, counts, waits. Its size does not grow with requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perilune.rehearse.histogram import Histogram
from perilune.rehearse.live import Live
from perilune.rehearse.outcome import RequestRecord
from perilune.rehearse.ticks import SECOND, seconds, ticks

Log = Callable[[int, str, int], None]
"""Told of every event: the instant in ticks, what (arrive, admit, first, retract, finish, reject), the request."""


@dataclass(frozen=True, slots=True)
class Targets:
    """An SLO in seconds; None where a side has no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None


class Tally:
    """Counts of requests and tokens, latencies in ticks, waits in ticks by cause."""

    __slots__ = (
        "_log",
        "_tpot_most",
        "_ttft_most",
        "admitted_max",
        "completed",
        "e2e",
        "end",
        "good",
        "has_targets",
        "hit_tokens",
        "itl",
        "output_tokens",
        "prompt_tokens",
        "records",
        "rejected",
        "remarks",
        "replicas",
        "retracted",
        "running",
        "submitted",
        "tpot",
        "ttft",
        "waits",
        "why_rejected",
    )

    def __init__(self, *, targets: Targets | None = None, records: bool = False, log: Log | None = None) -> None:
        self.ttft, self.tpot, self.itl, self.e2e = Histogram(), Histogram(), Histogram(), Histogram()
        self.submitted = self.completed = self.rejected = self.retracted = 0
        self.running = self.admitted_max = 0
        self.output_tokens = self.prompt_tokens = self.hit_tokens = 0
        self.waits: dict[str, int] = {}
        self.why_rejected: dict[str, int] = {}
        self.remarks: dict[str, int] = {}  # what else happened, and how often
        self.end = 0  # when the last request ended
        self.good = 0
        self.records: list[RequestRecord] | None = [] if records else None
        self.replicas: list[str] = []  # names, for records
        self._log = log
        self.has_targets = targets is not None
        # Far beyond any latency where there is no target.
        self._ttft_most = _most(targets.ttft_s if targets else None)
        self._tpot_most = _most(targets.tpot_s if targets else None)

    def remark(self, what: str, count: int = 1) -> None:
        """Something to be told of at the end, with how often it happened, if at all."""
        if count:
            self.remarks[what] = self.remarks.get(what, 0) + count

    def arrived(self, live: Live, now: int) -> None:
        """A request came."""
        self.submitted += 1
        if self._log is not None:
            self._log(now, "arrive", live.index)

    def admitted(self, live: Live, now: int) -> None:
        """A request got its slots and its first pages, after its last retraction if it had one."""
        self.running += 1
        if self.running > self.admitted_max:
            self.admitted_max = self.running
        if self._log is not None:
            self._log(now, "admit", live.index)

    def first(self, live: Live, now: int) -> None:
        """A request has its first token."""
        live.first = now
        if self._log is not None:
            self._log(now, "first", live.index)

    def retract(self, live: Live, now: int) -> None:
        """A running request went back to the queue."""
        self.running -= 1
        self.retracted += 1
        if self._log is not None:
            self._log(now, "retract", live.index)

    def finished(self, live: Live, now: int) -> None:
        """A request has its last token."""
        self.running -= 1
        self.completed += 1
        self.end = now
        arrival, first, osl = live.arrival, live.first, live.osl
        ttft = first - arrival
        self.ttft.add(ttft)
        self.e2e.add(now - arrival)
        tpot = 0
        if osl > 1:
            tpot = (now - first) // (osl - 1)
            self.tpot.add(tpot)
        self.output_tokens += osl
        self.prompt_tokens += live.isl
        self.hit_tokens += live.cached
        if ttft <= self._ttft_most and tpot <= self._tpot_most:
            self.good += 1
        if self._log is not None:
            self._log(now, "finish", live.index)
        if self.records is not None:
            self.records.append(self.record(live, now, "finished"))

    def reject(self, live: Live, now: int, why: str) -> None:
        """A request is refused: it can never be served here."""
        self.rejected += 1
        self.why_rejected[why] = self.why_rejected.get(why, 0) + 1
        self.end = max(self.end, now)
        if self._log is not None:
            self._log(now, "reject", live.index)
        if self.records is not None:
            self.records.append(self.record(live, now, "rejected"))

    def record(self, live: Live, now: int | None, end: str) -> RequestRecord:
        """The life of a request; `now` is when it ended, if it did."""
        return RequestRecord(
            index=live.index,
            isl=live.isl,
            osl=live.osl,
            arrival_s=seconds(live.arrival),
            first_token_s=seconds(live.first) if live.first >= 0 else None,
            end_s=None if now is None else seconds(now),
            end=end,
            cached_tokens=live.cached,
            replica=self.replicas[live.where] if live.where >= 0 else "",
        )


def _most(target: float | None) -> int:
    return SECOND << 40 if target is None else ticks(target)
