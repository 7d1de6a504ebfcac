"""What the parts of a fleet share while one rehearsal runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perilune.rehearse.events import Events
from perilune.rehearse.live import Live
from perilune.rehearse.tally import Tally

Ended = Callable[[Live, int], None]
"""Told of a request that finished or was refused, and when."""


@dataclass(frozen=True, slots=True)
class Run:
    """The queue of events, what the run adds up to, and its settings. A fleet calls `ended` for every request."""

    events: Events
    tally: Tally
    ended: Ended
    seed: int = 0
    one_step: bool = False  # advance servers one step at a time
    all_spans: bool = False  # keep every stretch of every server
