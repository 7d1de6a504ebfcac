"""Traffic that is described instead of recorded. The same seed gives the same requests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from perilune.errors import UnusableInput
from perilune.plan.display import counted
from perilune.rehearse.request import Request, Traffic
from perilune.rehearse.traces.images import image_tokens
from perilune.rehearse.traces.source import MOST_TOKENS
from perilune.rehearse.traces.turns import chained

BLOCK_TOKENS: Final = 16
"""Tokens of a block of the sessions made here."""

PROMPTS: Final = {1: 16, 16: 80, 64: 320, 256: 1280, 1024: 5120}
"""Prompts of the published closed-loop runs, by concurrency."""

MOST: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long prompts and answers are, as `sglang.bench_serving` draws them.

    Each length is a whole number from `range_ratio` of the most to the most, all equally likely; 1 makes every length
    the most. Images are the same size in every prompt and add their tokens to `isl`.
    """

    isl: int
    osl: int
    range_ratio: float = 1.0
    images: int = 0
    image_size: tuple[int, int] = (1024, 1024)  # pixels: width, height

    def __post_init__(self) -> None:
        _in_range("isl", self.isl, 1, MOST_TOKENS)
        _in_range("osl", self.osl, 1, MOST_TOKENS)
        _in_range("random-range-ratio", self.range_ratio, 0, 1)
        _in_range("images", self.images, 0, 10_000)

    @property
    def image_tokens(self) -> tuple[int, ...]:
        """Tokens of each image."""
        return (image_tokens(*self.image_size),) * self.images

    def drawn(self, rng: random.Random) -> Iterator[Request]:
        """Requests without end, all at 0."""
        images = self.image_tokens
        seen = sum(images)
        if self.range_ratio == 1:
            while True:
                yield Request(0.0, self.isl + seen, self.osl, (), 0, images)
        isl, osl = self._draw(self.isl, rng), self._draw(self.osl, rng)
        while True:
            yield Request(0.0, isl() + seen, osl(), (), 0, images)

    def _draw(self, most: int, rng: random.Random) -> Callable[[], int]:
        least = max(int(most * self.range_ratio), 1)
        return lambda: rng.randint(least, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A session of many turns whose context grows: a common system prompt, then question and answer in turn.

    A turn comes after a think time, exponential around `think_s`, once the answer before it is there.
    """

    turns: int
    system_tokens: int
    turn_tokens: int  # of each question
    osl: int
    think_s: float = 10.0
    systems: int = 1  # how many different system prompts there are; a session has one of them

    def __post_init__(self) -> None:
        _in_range("turns", self.turns, 1, 10_000)
        _in_range("system tokens", self.system_tokens, 0, MOST_TOKENS)
        _in_range("tokens of a turn", self.turn_tokens, 1, MOST_TOKENS)
        _in_range("osl", self.osl, 1, MOST_TOKENS)
        _in_range("think time", self.think_s, 0, 10.0**7)
        _in_range("system prompts", self.systems, 1, 10**6)
        _in_range(
            "tokens of a session", self.system_tokens + self.turns * (self.turn_tokens + self.osl), 1, MOST_TOKENS
        )

    def session(self, number: int, rng: random.Random) -> Request:
        """The first turn of a session, at 0, linked to the others."""
        first = chained(self._turns(number, rng))
        assert first is not None  # noqa: S101
        return first

    def _turns(self, number: int, rng: random.Random) -> Iterator[Request]:
        """The turns; full blocks of prompt and answer have ids, those of the system prompt in common."""
        common = self.system_tokens // BLOCK_TOKENS
        system = -(rng.randrange(self.systems) + 1) << 40
        ids = tuple(range(system, system + common))
        own = (number + 1) << 40
        isl = self.system_tokens
        for turn in range(self.turns):
            isl += self.turn_tokens
            blocks = (isl + self.osl) // BLOCK_TOKENS
            ids += tuple(range(own + len(ids), own + blocks))
            wait = rng.expovariate(1 / self.think_s) if turn and self.think_s else 0.0
            yield Request(wait, isl, self.osl, ids, BLOCK_TOKENS, session=number)
            isl += self.osl


def num_prompts(concurrency: int) -> int:
    """How many prompts a closed loop of that concurrency is measured with, as the published runs did."""
    return PROMPTS.get(concurrency, max(2 * concurrency, 200))


def closed_loop(lengths: Lengths, concurrency: int, requests: int | None = None, seed: int = 0) -> Traffic:
    """So many requests always in flight, as `sglang.bench_serving --max-concurrency` keeps them."""
    _in_range("concurrency", concurrency, 1, MOST)
    count = _count(num_prompts(concurrency) if requests is None else requests)
    made = _first(lengths.drawn(random.Random(seed)), count)  # noqa: S311
    return Traffic(made, f"closed loop of {concurrency}, {_said(lengths)}", concurrency, count)


def poisson(lengths: Lengths, rate: float, requests: int, seed: int = 0) -> Traffic:
    """Arrivals that know nothing of each other, `rate` a second."""
    return bursty(lengths, rate, 1.0, requests, seed)


def bursty(lengths: Lengths, rate: float, cv: float, requests: int, seed: int = 0) -> Traffic:
    """Arrivals at a rate whose gaps are gamma distributed with that coefficient of variation; 1 is Poisson.

    Over 1 they come in bursts, under 1 more evenly, at 0 like clockwork. The first comes at 0.
    """
    _in_range("rate", rate, 1e-9, 1e6)
    _in_range("coefficient of variation", cv, 0, 100)
    count = _count(requests)
    rng = random.Random(seed)  # noqa: S311
    made = _paced(_first(lengths.drawn(rng), count), _gaps(rate, cv, rng))
    kind = "Poisson" if cv == 1 else f"bursty (CV {cv:g})"
    return Traffic(made, f"{kind} at {_pace(rate, 'request')}, {_said(lengths)}", total=count)


def sessions(
    conversation: Conversation,
    count: int,
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    seed: int = 0,
) -> Traffic:
    """Conversations: so many sessions that start as a Poisson process of `rate` a second, or in a closed loop."""
    if (rate is None) == (concurrency is None):
        raise UnusableInput("Sessions start at a rate or in a closed loop: give one of the two.", where="sessions")
    _in_range("sessions", count, 1, MOST)
    rng = random.Random(seed)  # noqa: S311
    made = (conversation.session(number, rng) for number in range(count))
    name = f"sessions of {counted(conversation.turns, 'turn')}"
    if rate is None:
        _in_range("concurrency", concurrency or 0, 1, MOST)
        return Traffic(made, f"{name}, closed loop of {concurrency}", concurrency, count * conversation.turns)
    _in_range("rate", rate, 1e-9, 1e6)
    return Traffic(
        _paced(made, _gaps(rate, 1.0, rng)), f"{name} at {_pace(rate, 'session')}", total=count * conversation.turns
    )


def _gaps(rate: float, cv: float, rng: random.Random) -> Callable[[], float]:
    if cv == 0:
        return lambda: 1 / rate
    if cv == 1:
        return lambda: rng.expovariate(rate)
    shape = 1 / (cv * cv)
    return lambda: rng.gammavariate(shape, 1 / (rate * shape))


def _paced(requests: Iterator[Request], gap: Callable[[], float]) -> Iterator[Request]:
    instant = 0.0
    for request in requests:
        request.arrival_s = instant
        yield request
        instant += gap()


def _first(requests: Iterator[Request], count: int) -> Iterator[Request]:
    for _, request in zip(range(count), requests, strict=False):
        yield request


def _pace(rate: float, noun: str) -> str:
    return f"{rate:g} {noun if rate == 1 else f'{noun}s'}/s"


def _count(requests: int) -> int:
    _in_range("requests", requests, 1, MOST)
    return requests


def _said(lengths: Lengths) -> str:
    size = f"{lengths.isl}/{lengths.osl} tokens"
    ratio = "" if lengths.range_ratio == 1 else f", lengths from {lengths.range_ratio:g} of that"
    images = f", {lengths.images} images of {lengths.image_size[0]}x{lengths.image_size[1]}" if lengths.images else ""
    return size + ratio + images


def _in_range(name: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise UnusableInput(f"It must be {least:g} to {most:g}, not {value:g}.", where=name)
