"""What a rehearsal found. Times are seconds; memory does not grow with the number of requests served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perilune.rehearse.costs import Basis


@dataclass(frozen=True, slots=True)
class Distribution:
    """A sketch of one quantity. `cdf` holds (value, share at or below it), rising; percentiles are within 0.1 %."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    cdf: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """How the requests ended."""

    completed: int
    rejected: int
    retracted: int  # times a running request was sent back to the queue
    unfinished: int


@dataclass(frozen=True, slots=True)
class Series:
    """The fleet over time, in equal bins of `bin_s` seconds. Gauges are time-weighted means of a bin."""

    bin_s: float
    running: tuple[float, ...]
    queued: tuple[float, ...]
    kv_used: tuple[float, ...]  # share of the KV tokens, 0 to 1
    slots_used: tuple[float, ...]  # share of the state slots; empty without a state pool
    prompt_tokens: tuple[int, ...]  # prefilled in the bin (cache hits not counted)
    output_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one replica's life, for lanes and Perfetto: `what` is prefill, decode, transfer, encode or down."""

    start_s: float
    end_s: float
    what: str
    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ReplicaOutcome:
    """One server of the fleet. `spans` is bounded: only the first are kept unless a trace was asked for."""

    name: str  # such as prefill-0
    role: str
    gpus: int
    admitted_max: int
    completed: int
    busy_share: float  # of its time in a step
    series: Series
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request's life, kept only when asked for. Instants are seconds from the start."""

    index: int
    isl: int
    osl: int
    arrival_s: float
    first_token_s: float | None
    end_s: float | None
    end: str  # finished | rejected | unfinished
    cached_tokens: int
    replica: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rehearsal. Latencies are of requests that completed, but for `itl_s`.

    `itl_s` counts every gap between two outputs of a request as a streaming client sees them: with speculation one gap
    a verify step, whatever it yields. `tpot_s` is (e2e - ttft) / (osl - 1). `waits_s` sums, by cause, what all requests
    waited for in queues: at any instant a queued request waits for one thing. `goodput` is there when targets were
    given.
    """

    traffic: str
    gpus: int
    duration_s: float
    ttft_s: Distribution
    tpot_s: Distribution
    itl_s: Distribution
    e2e_s: Distribution
    requests: Counts
    admitted_max: int
    output_tokens: int
    prompt_tokens: int
    hit_tokens: int
    waits_s: Mapping[str, float]  # state_slots, kv_tokens, request_limit, prefill, transfer, encoder, ...
    basis: Basis
    error_band: tuple[float, float]
    series: Series
    replicas: tuple[ReplicaOutcome, ...]
    records: tuple[RequestRecord, ...] = ()
    notes: tuple[str, ...] = ()
    goodput: Mapping[str, float] = field(default_factory=dict)  # share and requests/s within the SLO
    interrupted: bool = False
    seed: int = 0

    @property
    def output_tokens_per_second(self) -> float:
        """Generated tokens per second of the fleet."""
        return self.output_tokens / self.duration_s if self.duration_s else 0.0

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """(input + output) tokens per second and GPU, as the published tables count them."""
        spent = self.duration_s * self.gpus
        return (self.prompt_tokens + self.output_tokens) / spent if spent else 0.0
