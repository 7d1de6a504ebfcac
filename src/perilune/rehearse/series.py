"""What a replica did over time, in a fixed number of bins that double their width as the run grows longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perilune.rehearse.outcome import Series
from perilune.rehearse.ticks import SECOND

BINS: Final = 512
FIRST_WIDTH: Final = SECOND // 1024
"""Bins start about a millisecond wide: half a second in all, a day after eighteen doublings."""

RUNNING, QUEUED, KV, SLOTS, PROMPT, OUTPUT = range(6)


class Timeline:
    """Areas of four gauges (requests, tokens, slots times ticks) and two counts of tokens, bin by bin.

    A stretch of time is told at once, after it: what ran during it, and the sums over it.
    """

    __slots__ = ("_pending", "_rows", "_until", "end", "width")

    def __init__(self) -> None:
        self.width = FIRST_WIDTH
        self._rows: list[list[int]] = [[0] * 6]
        self._until = FIRST_WIDTH  # end of the newest bin
        self._pending = self._rows[-1]
        self.end = 0

    def add(
        self, start: int, end: int, running: int, queued: int, kv: int, slots: int, prompt: int, output: int
    ) -> None:
        """Tell of [start, end), which begins where the last one ended or later.

        `running`, `kv` and `slots` held throughout; `queued` is an area already; `prompt` and `output` are tokens,
        spread evenly.
        """
        if end > self._until or start < self._until - self.width:
            self._spread(start, end, (running, queued, kv, slots, prompt, output))
            return
        lasts = end - start
        row = self._pending
        row[0] += running * lasts
        row[1] += queued
        row[2] += kv * lasts
        row[3] += slots * lasts
        row[4] += prompt
        row[5] += output
        self.end = end

    def _spread(self, start: int, end: int, told: tuple[int, int, int, int, int, int]) -> None:
        while end > self.width * BINS:
            self._double()
        rows, width, lasts = self._rows, self.width, end - start
        last = max((end - 1) // width, 0)
        while len(rows) <= last:
            rows.append([0] * 6)
        running, queued, kv, slots, prompt, output = told
        if not lasts:
            row = rows[min(start // width, len(rows) - 1)]
            for at, tokens in ((QUEUED, queued), (PROMPT, prompt), (OUTPUT, output)):
                row[at] += tokens
        before = start
        done = [0, 0, 0]
        while before < end:
            at = before // width
            upto = min((at + 1) * width, end)
            row, part, so_far = rows[at], upto - before, upto - start
            row[RUNNING] += running * part
            row[KV] += kv * part
            row[SLOTS] += slots * part
            for n, (column, total) in enumerate(((QUEUED, queued), (PROMPT, prompt), (OUTPUT, output))):
                share = total * so_far // lasts
                row[column] += share - done[n]
                done[n] = share
            before = upto
        self._until = len(rows) * width
        self._pending = rows[-1]
        self.end = max(self.end, end)

    def _double(self) -> None:
        rows = self._rows
        if len(rows) % 2:
            rows.append([0] * 6)
        self._rows = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(rows[::2], rows[1::2], strict=True)]
        self.width *= 2
        self._until = len(self._rows) * self.width
        self._pending = self._rows[-1]

    def rows(self, width: int) -> list[list[int]]:
        """The bins at `width`, which is this width or a doubling of it."""
        step = width // self.width
        return [
            [sum(column) for column in zip(*self._rows[at : at + step], strict=True)]
            for at in range(0, len(self._rows), step)
        ]


def series(lines: Sequence[Timeline], tokens: int, slots: int, duration: int) -> Series:
    """One picture of several replicas that together have `tokens` KV tokens and `slots` state slots.

    The last bin is averaged over the part of it that the run of `duration` ticks reached.
    """
    width = max((line.width for line in lines), default=FIRST_WIDTH)
    count = max((len(line.rows(width)) for line in lines), default=0)
    total = [[0] * 6 for _ in range(count)]
    for line in lines:
        for row, more in zip(total, line.rows(width), strict=False):
            for at, value in enumerate(more):
                row[at] += value
    spans = [max(min(width, duration - at * width), 1) for at in range(count)]

    def gauge(column: int, of: int = 1) -> tuple[float, ...]:
        return tuple(row[column] / (span * of) for row, span in zip(total, spans, strict=True))

    return Series(
        bin_s=width / SECOND,
        running=gauge(RUNNING),
        queued=gauge(QUEUED),
        kv_used=gauge(KV, tokens) if tokens else (),
        slots_used=gauge(SLOTS, slots) if slots else (),
        prompt_tokens=tuple(row[PROMPT] for row in total),
        output_tokens=tuple(row[OUTPUT] for row in total),
    )
