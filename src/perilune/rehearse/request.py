"""One request of a workload, and the traffic that a rehearsal is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

LATEST_S: Final = 10 * 365 * 86400.0
"""The last instant that a request may come: ten years."""


@dataclass(slots=True, eq=False)
class Request:
    """One request: when it comes, how long it is, and what of it may already be cached.

    `blocks` are ids of equal content, `block_tokens` tokens each, from the start of the prompt; the last may be
    partial. They may run on past the prompt into the answer where the trace knows it, or end before the prompt does:
    what they do not cover is like no other. Requests that share leading ids share a prefix.
    """

    arrival_s: float  # seconds after the start; of a later turn: seconds after the turn before it finished
    isl: int  # prompt tokens, images included
    osl: int  # generated tokens
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    images: tuple[int, ...] = ()  # tokens of each image in the prompt
    then: Request | None = None  # the next turn of the same session
    session: int = -1  # requests of one session share it; -1 without


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a rehearsal is given: requests made one at a time, in order of arrival.

    In a closed loop (`concurrency`) arrivals are ignored: that many requests are kept in flight.
    """

    requests: Iterator[Request]
    name: str
    concurrency: int | None = None
    total: int | None = None  # requests in all, where known, for progress
    notes: Sequence[str] = ()  # what the reader did to the data, such as rows skipped; grows while requests are read
