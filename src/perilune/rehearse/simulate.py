"""The event loop: traffic comes to a fleet.

Everything happens at events of one queue (`events.Events`): a request arrives, a server's step ends, an idle server
looks at its queue. Between them a server decodes many steps at once (`replica.Replica`), which changes nothing: with
`one_step` every step is an event of its own and the events of the requests are the same.

A `Fleet` makes its servers in `open`, is given every request in `submit`, and calls `Run.ended` when one has finished
or was refused. It puts events of its own, such as the end of a transfer, into the same queue.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from perilune.errors import UnusableInput
from perilune.rehearse.events import ARRIVAL, Events
from perilune.rehearse.live import Live
from perilune.rehearse.outcome import Outcome
from perilune.rehearse.replica.replica import Replica
from perilune.rehearse.request import LATEST_S, Request, Traffic
from perilune.rehearse.run import Run
from perilune.rehearse.summed import outcome_of
from perilune.rehearse.tally import Log, Tally, Targets
from perilune.rehearse.ticks import ticks

EVENTS_BETWEEN_LOOKS = 256
PROGRESS_S = 0.1


class Fleet(Protocol):
    """The servers and how requests come to them."""

    def open(self, run: Run) -> Sequence[Replica]:
        """Make the servers, empty."""
        ...

    def submit(self, live: Live, now: int) -> None:
        """A request arrives at the front."""
        ...


class _Source:
    """Takes requests from the traffic as they are due, and brings their later turns."""

    def __init__(
        self,
        traffic: Traffic,
        events: Events,
        tally: Tally,
        submit: Callable[[Live, int], None],
        front_end: tuple[int, int],
    ) -> None:
        self._requests = traffic.requests
        self._closed = traffic.concurrency is not None
        self._events = events
        self._tally = tally
        self._submit = submit
        self._per_request, self._per_token = front_end
        self._count = 0
        self._latest = 0
        self.in_flight: dict[int, Live] = {}

    def start(self, concurrency: int | None) -> None:
        """The first request of an open loop, or as many as a closed loop keeps in flight."""
        for _ in range(1 if concurrency is None else concurrency):
            self._next(0)

    def _next(self, now: int) -> None:
        request = next(self._requests, None)
        if request is None:
            return
        if self._closed:
            self._events.at(now, ARRIVAL, self._arrive, request)
            return
        if not 0 <= request.arrival_s <= LATEST_S:
            raise UnusableInput(
                f"Request {self._count + 1} arrives at {request.arrival_s:,.6g} s, and a rehearsal is at most "
                f"{LATEST_S:,.0f} s long.",
                where="arrival",
                fix="Ask for fewer requests, or for a higher rate.",
            )
        due = ticks(request.arrival_s)
        if due < self._latest:
            raise UnusableInput(
                f"Request {self._count + 1} arrives at {request.arrival_s} s, before the one ahead of it.",
                where="arrival",
                fix="Sort the requests by arrival.",
            )
        self._latest = due
        self._events.at(due, ARRIVAL, self._arrive_and_pull, request)

    def _arrive_and_pull(self, now: int, request: Request) -> None:
        self._arrive(now, request)
        self._next(now)

    def _arrive(self, now: int, request: Request) -> None:
        live = Live(request, self._count, now)
        self._count += 1
        self.in_flight[live.index] = live
        self._tally.arrived(live, now)
        way = self._per_request + self._per_token * live.isl
        if way:
            self._events.at(now + way, ARRIVAL, self._reach, live)
        else:
            self._submit(live, now)

    def _reach(self, now: int, live: Live) -> None:
        self._submit(live, now)

    def ended(self, live: Live, now: int) -> None:
        """A request finished or was refused: its next turn follows, or in a closed loop the next request."""
        del self.in_flight[live.index]
        then = live.request.then
        if then is not None and live.first >= 0:
            self._events.at(now + ticks(then.arrival_s), ARRIVAL, self._arrive, then)
        elif self._closed:
            self._next(now)


def simulate(
    traffic: Traffic,
    fleet: Fleet,
    *,
    seed: int = 0,
    one_step: bool = False,
    records: bool = False,
    spans: bool = False,
    targets: Targets | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
    log: Log | None = None,
    front_end: tuple[int, int] = (0, 0),
) -> Outcome:
    """Rehearse `traffic` on `fleet`.

    `records` and `spans` keep every request and every stretch, and so take memory without bound. `stop` and `progress`
    (told the requests ended so far) are asked every few hundred events; Ctrl-C and a true `stop` end the run early,
    with what there is. `targets` asks for goodput. `front_end` is what a request takes to reach the fleet, in ticks a
    request and ticks a prompt token. Raises UnusableInput for requests that are out of order in time.
    """
    events = Events()
    tally = Tally(targets=targets, records=records, log=log)
    source = _Source(traffic, events, tally, fleet.submit, front_end)
    run = Run(events, tally, source.ended, seed, one_step, spans)
    replicas = fleet.open(run)
    collecting = gc.isenabled()
    gc.disable()
    try:
        source.start(traffic.concurrency)
        interrupted = _drive(events, tally, stop, progress)
    finally:
        if collecting:
            gc.enable()
    end = events.now if interrupted else tally.end
    return outcome_of(traffic, replicas, tally, source.in_flight.values(), end=end, seed=seed, interrupted=interrupted)


def _drive(
    events: Events, tally: Tally, stop: Callable[[], bool] | None, progress: Callable[[int], None] | None
) -> bool:
    """Handle events until there are none; whether the run was ended before."""
    told = time.monotonic()
    try:
        while events:
            events.run(EVENTS_BETWEEN_LOOKS)
            if stop is not None and stop():
                return True
            if progress is not None and time.monotonic() - told >= PROGRESS_S:
                progress(tally.completed + tally.rejected)
                told = time.monotonic()
    except KeyboardInterrupt:
        return True
    return False
