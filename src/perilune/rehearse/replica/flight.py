"""One prefill pass of one rank: what it computes, and what it costs."""

from __future__ import annotations

from perilune.rehearse.live import Live


class Flight:
    """A prefill batch. `done` are the requests that it brings to their first token."""

    __slots__ = ("cut", "cut_end", "done", "images", "late", "mixed", "pairs", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0  # new tokens
        self.pairs = 0  # over the new tokens, the tokens that each attends to
        self.done: list[Live] = []
        self.cut: Live | None = None  # the request that it leaves unfinished,
        self.cut_end = 0  # and how far it brings it
        self.late = 0  # ticks after the step until its results have passed the last pipeline stage
        self.mixed = False  # whether the running batch decodes in it
        self.images: list[tuple[Live, int, int]] = []  # the parts of prompts with images

    def take(self, live: Live, extend: int, *, last: bool) -> None:
        """Compute `extend` more tokens of a request, to its end or not."""
        start = live.done
        self.requests += 1
        self.tokens += extend
        self.pairs += extend * start + extend * (extend + 1) // 2
        live.start = start
        live.done = start + extend
        if last:
            self.done.append(live)
        else:
            self.cut = live
            self.cut_end = live.done
        if live.request.images:
            self.images.append((live, start, live.done))
