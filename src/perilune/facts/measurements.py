"""Published measurements of Kimi-K3, with engine version and caveats. Data in `data/measurements.yaml`.

A measurement stands beside a prediction and is never shown as one.
"""

from __future__ import annotations

from functools import cache

import msgspec

from perilune.facts.load import load
from perilune.facts.recipes import Confidence


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One concurrency of a card: P50 latencies in milliseconds, throughput of input and output tokens."""

    concurrency: int
    ttft_ms: float
    tpot_ms: float
    tokens_per_s_per_gpu: float
    interactivity: float  # tokens per second per user, 1000 / tpot_ms


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published speed round of one cell. `date` is that of the run, None where it was not given."""

    cell: str  # recipe id
    quant: str
    spec: str
    engine: str  # SGLang version @ commit
    points: tuple[Point, ...]
    sources: tuple[str, ...]
    confidence: Confidence
    date: str | None = None
    added: str = ""  # flags on top of the recipe
    acceptance_length: float | None = None  # tokens a speculative step, as SGLANG_SIMULATE_ACC_LEN pinned it
    caveats: tuple[str, ...] = ()


class AdmissionCap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many concurrent requests the state pool of a cell was seen to admit."""

    cell: str
    quant: str
    spec: str
    requests: int
    sources: tuple[str, ...]
    confidence: Confidence


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures from running text; the units are in `what`."""

    id: str
    what: str
    rows: tuple[dict[str, str | float], ...]
    sources: tuple[str, ...]
    confidence: Confidence
    caveats: tuple[str, ...] = ()


class Method(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the cards were measured."""

    tool: str
    dataset: str
    isl: int
    osl: int
    warmup_requests: int
    prompts_by_concurrency: dict[int, int]
    flush_cache: bool
    percentile: str
    sources: tuple[str, ...]
    revisions: dict[str, str]
    accuracy: str


class Measurements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything published."""

    method: Method
    cards: tuple[Card, ...]
    admission_caps: tuple[AdmissionCap, ...]
    figures: tuple[Figure, ...]


@cache
def measurements() -> Measurements:
    """Every published measurement."""
    return load("measurements.yaml", Measurements)


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure of a recipe, as a sentence, and what to know about it.

    `caps` says that it is a number of requests; `differs` is what the measured command has or lacks.
    """

    says: str
    engine: str = ""
    date: str | None = None
    caveats: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    caps: bool = False
    differs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The figure as plain data."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "caps"}


def published_caps(cell: str, quant: str, spec: str) -> tuple[tuple[Published, str], ...]:
    """Request caps seen on a recipe id with this quantization and speculation, and the flags added to the recipe."""
    return tuple(
        (Published(says=f"admits {cap.requests} requests", sources=cap.sources, caps=True), "")
        for cap in measurements().admission_caps
        if (cap.cell, cap.quant, cap.spec) == (cell, quant, spec)
    )


def published_cards(cell: str, quant: str, spec: str) -> tuple[tuple[Published, str], ...]:
    """Speeds measured on a recipe id, each concurrency with the flags that were added to the recipe."""
    return tuple(
        (
            Published(
                says=_sentence(point),
                engine=card.engine,
                date=card.date,
                caveats=card.caveats,
                sources=card.sources,
            ),
            card.added,
        )
        for card in measurements().cards
        if (card.cell, card.quant, card.spec) == (cell, quant, spec)
        for point in card.points
    )


def _sentence(point: Point) -> str:
    return (
        f"{point.concurrency} at once: TTFT {point.ttft_ms / 1000:.2f} s, TPOT {point.tpot_ms:g} ms, "
        f"{point.tokens_per_s_per_gpu:,.0f} tokens/s/GPU (P50)"
    )
