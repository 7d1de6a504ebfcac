"""The load that is offered to a fleet: a trace, a closed loop or Poisson arrivals, described in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from perilune.errors import UnusableInput
from perilune.rehearse.request import Traffic
from perilune.rehearse.traces import Lengths, closed_loop, num_prompts, poisson
from perilune.rehearse.traces import traffic as read_trace

PROMPTS_AT_A_RATE: Final = 1000
"""Requests of an open loop when nobody says how many, as `sglang.bench_serving --num-prompts` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """What a rehearsal is asked to serve. A trace brings its own lengths, and its own arrivals unless one is given.

    Raises UnusableInput for a description that does not hold together.
    """

    trace: Path | None = None
    trace_format: str | None = None
    concurrency: int | None = None  # requests kept in flight
    rate: float | None = None  # requests per second
    requests: int | None = None
    isl: int | None = None
    osl: int | None = None
    range_ratio: float = 1.0  # lengths are drawn from this share of the most to the most
    images: int = 0  # of every request
    image_size: tuple[int, int] = (1024, 1024)  # pixels: width, height
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.rate is not None:
            raise UnusableInput(
                "A closed loop has no rate of arrivals.", where="--rate", fix="Give --concurrency or --rate, not both."
            )
        if self.trace is not None:
            if self.isl is not None or self.osl is not None:
                raise UnusableInput(
                    "A trace brings its own lengths.", where="--trace", fix="Leave --isl and --osl out."
                )
        elif self.trace_format is not None:
            raise UnusableInput("There is no trace.", where="--trace-format", fix="Give --trace FILE.")
        elif self.concurrency is None and self.rate is None:
            raise UnusableInput(
                "No traffic was described.", where="rehearse", fix="Give --trace FILE, --concurrency N or --rate R."
            )
        elif self.isl is None or self.osl is None:
            raise UnusableInput("How long are the requests?", where="--isl, --osl", fix="Give both, in tokens.")

    @property
    def kind(self) -> Literal["closed loop", "open loop", "trace"]:
        """What drives the arrivals, in a word."""
        if self.trace is not None:
            return "trace"
        return "open loop" if self.concurrency is None else "closed loop"

    @property
    def may_have_images(self) -> bool:
        """Whether a request may have one: they are described, or a trace may bring them."""
        return self.images > 0 or self.trace is not None

    @property
    def total(self) -> int | None:
        """Requests in all; None for a whole trace."""
        if self.requests is not None or self.trace is not None:
            return self.requests
        return PROMPTS_AT_A_RATE if self.concurrency is None else num_prompts(self.concurrency)

    def traffic(self) -> Traffic:
        """The requests, made as they are asked for. Raises UnusableInput for a trace that cannot be read."""
        if self.trace is not None:
            return read_trace(
                self.trace,
                format=self.trace_format,
                limit=self.requests,
                seed=self.seed,
                rate=self.rate,
                concurrency=self.concurrency,
            )
        lengths = Lengths(
            isl=self.isl or 0,
            osl=self.osl or 0,
            range_ratio=self.range_ratio,
            images=self.images,
            image_size=self.image_size,
        )
        if self.concurrency is not None:
            return closed_loop(lengths, self.concurrency, self.total, self.seed)
        return poisson(lengths, self.rate or 0.0, self.total or 0, self.seed)
