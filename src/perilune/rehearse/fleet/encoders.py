"""Vision encoders on servers of their own (`--encoder-only`): images go there first, their embeddings to prefill.

Rules of SGLang 0.5.23 (disaggregation/encoder/receiver.py `_assign_items_by_modality`, encoder/runtime.py
`EncoderScheduler`): the images of a request are dealt evenly to the encoders, in an order drawn anew for every
request, as one part each; an encoder takes what waits, up to two parts for Kimi-K3, in one call, and sends every part
when the call is over. A request goes on to prefill when all of its parts are there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from perilune.rehearse.events import STEP, Events
from perilune.rehearse.fleet.link import Link
from perilune.rehearse.run import Run
from perilune.rehearse.vision import Encode, GraphSettings, Tower

PARTS_AT_ONCE: Final = 2
"""Parts of one call, for Kimi-K3, unless SGLANG_ENCODER_MAX_BATCH_SIZE is set."""

Encoded = Callable[[int], None]


class Job:
    """The images of one request on their way through the encoders."""

    __slots__ = ("encoded", "left")

    def __init__(self, parts: int, encoded: Encoded) -> None:
        self.left = parts
        self.encoded = encoded


def deal(images: Sequence[int], encoders: int, random: Random) -> list[tuple[int, Sequence[int]]]:
    """The parts of a request: an encoder and the images (tokens of each) it gets, in the images' order."""
    order = list(range(encoders))
    random.shuffle(order)
    base, more = divmod(len(images), encoders)
    counts = [0] * encoders
    for turn, encoder in enumerate(order):
        counts[encoder] = base + (turn < more)
    parts: list[tuple[int, Sequence[int]]] = []
    at = 0
    for encoder, count in enumerate(counts):
        if count:
            parts.append((encoder, images[at : at + count]))
            at += count
    return parts


class Encoder:
    """One encoder server."""

    def __init__(self, tower: Tower, send: Callable[[int], int], events: Events, parts_at_once: int) -> None:
        self.busy = 0  # ticks of encoding
        self._tower = tower
        self._send = send
        self._events = events
        self._most = parts_at_once
        self._link = Link()
        self._waiting: deque[tuple[Job, Sequence[int]]] = deque()
        self._call: list[tuple[Job, Sequence[int]]] = []

    def take(self, job: Job, images: Sequence[int], now: int) -> None:
        """Encode these images after what already waits."""
        self._waiting.append((job, images))
        if not self._call:
            self._start(now)

    def _start(self, now: int) -> None:
        waiting = self._waiting
        self._call = [waiting.popleft() for _ in range(min(self._most, len(waiting)))]
        time = self._tower.forward([image for _, images in self._call for image in images])
        self.busy += time
        self._events.at(now + time, STEP, self._over)

    def _over(self, now: int, _: object) -> None:
        for job, images in self._call:
            self._events.at(self._link.carry(now, self._send(sum(images))), STEP, _landed, job)
        self._call = []
        if self._waiting:
            self._start(now)


def _landed(now: int, job: Job) -> None:
    job.left -= 1
    if not job.left:
        job.encoded(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSettings:
    """Encoder servers of one kind. `send` gives the ticks of a server's line for the embeddings of so many tokens."""

    servers: int
    encode: Encode
    send: Callable[[int], int]
    graphs: GraphSettings | None = None
    parts_at_once: int = PARTS_AT_ONCE

    def pool(self, run: Run) -> EncoderPool:
        """The encoders, empty, dealing requests by their own stream of chance."""
        towers = [Tower(self.encode, graphs=self.graphs) for _ in range(self.servers)]
        random = Random(f"encoders {run.seed}")  # noqa: S311 - a simulation, not a secret
        return EncoderPool(towers, self.send, run.events, random, parts_at_once=self.parts_at_once)


class EncoderPool:
    """The encoders of a fleet. `send` gives the ticks of an encoder's line for the embeddings of so many tokens."""

    def __init__(
        self,
        towers: Sequence[Tower],
        send: Callable[[int], int],
        events: Events,
        random: Random,
        *,
        parts_at_once: int = PARTS_AT_ONCE,
    ) -> None:
        self.encoders = [Encoder(tower, send, events, parts_at_once) for tower in towers]
        self._random = random

    def encode(self, images: Sequence[int], now: int, encoded: Encoded) -> None:
        """Encode the images of one request and call `encoded` with the instant when all embeddings have come."""
        parts = deal(images, len(self.encoders), self._random)
        job = Job(len(parts), encoded)
        for encoder, share in parts:
            self.encoders[encoder].take(job, share, now)
