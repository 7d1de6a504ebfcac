"""What is remembered of a server's time: a timeline, and the first of its stretches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from perilune.rehearse.series import Timeline

KEPT: Final = 10_000


@dataclass(slots=True)
class Stretch:
    """Steps of one kind in a row. Instants are ticks."""

    start: int
    end: int
    what: str
    requests: int
    tokens: int


class Chronicle:
    """Told of every stretch when it is over. Keeps `KEPT` of them, or all."""

    __slots__ = ("_most", "busy", "line", "stretches")

    def __init__(self, *, everything: bool) -> None:
        self.line = Timeline()
        self.busy = 0  # ticks in a step
        self.stretches: list[Stretch] = []
        self._most = None if everything else KEPT

    def step(
        self, start: int, end: int, *, requests: int, queued: int, used: int, slots: int, prompt: int, output: int
    ) -> None:
        """Steps went from `start` to `end`: `queued` is requests times ticks, `used` KV tokens, `slots` state slots."""
        self.busy += end - start
        self.line.add(start, end, requests, queued, used, slots, prompt, output)
        if prompt:
            self.add(Stretch(start, end, "prefill", requests, prompt))
            return
        newest = self.stretches[-1] if self.stretches else None
        if newest is not None and newest.end == start and newest.what == "decode":
            newest.end = end
            newest.tokens += output
            newest.requests = max(newest.requests, requests)
        else:
            self.add(Stretch(start, end, "decode", requests, output))

    def add(self, stretch: Stretch) -> None:
        """Remember a stretch of any kind."""
        if self._most is None or len(self.stretches) < self._most:
            self.stretches.append(stretch)
