"""The other way round: which split of the pools admits a given number of requests of a given length.

Every answer comes from evaluating the engine's own sizing (`pools.size_pools`), so it is exact: both ends of
an interval admit the demand, and the next value beyond either end does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from msgspec.structs import replace

from perilune.plan.memory.pools import GIB, PoolInputs, Sizing, rest_gib, size_pools, state_share
from perilune.plan.resolve.state import Rejected

RATIO_DIGITS = 4  # significant digits of a ratio worth writing into a command
LOW_RATIO, HIGH_RATIO = 1e-6, 1e6
MOST_REQUESTS = 1 << 44


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests at once over the whole server, and the tokens each may reach (input and output together)."""

    concurrency: int
    tokens: int

    def per_worker(self, attn_dp: int) -> int:
        """Requests the fullest attention-DP worker must hold."""
        return -(-self.concurrency // attn_dp)


@dataclass(frozen=True, slots=True)
class Slots:
    """Values of --max-mamba-cache-size, for the whole server, that admit the demand."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Ratios:
    """Values of --mamba-full-memory-ratio, to four digits, that admit the demand."""

    low: Decimal
    high: Decimal

    @property
    def safest(self) -> Decimal:
        """The value with as much room below as above, in proportion."""
        return max(self.low, _rounded(Decimal(float(self.low * self.high) ** 0.5), ROUND_FLOOR))


@dataclass(frozen=True, slots=True)
class Split:
    """What admits a demand, or how far it is from being admitted. `None` where no value of a flag does."""

    demand: Demand
    admitted: bool  # by some split of this memory
    slots: Slots | None
    ratios: Ratios | None
    asked: int | None  # --max-running-requests that has to be written; None when the present one allows it
    most: int  # requests of this length that the best split admits, whole server
    state_gib: float  # what the demand needs of each pool, per GPU
    kv_gib: float
    rest_gib: float

    @property
    def short_gib(self) -> float:
        """Memory missing per GPU; 0 when the demand is admitted."""
        return 0.0 if self.admitted else max(self.state_gib + self.kv_gib - self.rest_gib, 0.0)


def request_tokens(i: PoolInputs, tokens: int) -> int:
    """Tokens of the pool that one request of `tokens` takes: whole pages of the allocator (page x DCP)."""
    page = i.page * i.dcp
    return -(-max(tokens, 1) // page) * page


def requests_of_length(i: PoolInputs, sizing: Sizing, tokens: int) -> int:
    """Requests of `tokens` each that the KV pool alone holds, per worker."""
    return sizing.logical_tokens // request_tokens(i, tokens)


def holds(i: PoolInputs, requests: int, tokens: int) -> bool:
    """Whether a worker runs `requests` at once under `i`, each grown to `tokens`."""
    try:
        sizing = size_pools(i)
    except Rejected:
        return False
    return sizing.requests >= requests and requests_of_length(i, sizing, tokens) >= requests


def split_for(i: PoolInputs, demand: Demand) -> Split:
    """Find every split of the memory of `i` that admits `demand`."""
    need = demand.per_worker(i.attn_dp)
    present = i.asked_per_worker
    asked = need * i.attn_dp if present is not None and present < need else None
    allowed = i if asked is None else replace(i, asked=asked)
    slots = _slots(allowed, need, demand.tokens) if i.hybrid else None
    ratios = _ratios(allowed, need, demand.tokens) if i.hybrid else None
    admitted = slots is not None or ratios is not None or holds(allowed, need, demand.tokens)
    state, kv = _needs(allowed, need, demand.tokens)
    return Split(
        demand=demand,
        admitted=admitted,
        slots=slots,
        ratios=ratios,
        asked=asked,
        most=most_requests(i, demand.tokens) * i.attn_dp,
        state_gib=state / GIB,
        kv_gib=kv / GIB,
        rest_gib=rest_gib(i),
    )


def most_requests(i: PoolInputs, tokens: int) -> int:
    """The most requests of `tokens` each that any split admits, per worker."""
    return _last(lambda n: n == 0 or holds(_leanest(i, n), n, tokens), 0, MOST_REQUESTS)


def _leanest(i: PoolInputs, requests: int) -> PoolInputs:
    """The split with exactly the state slots that `requests` a worker need."""
    slots = requests * i.slots_per_request * i.attn_dp if i.hybrid else None
    return replace(i, asked=requests * i.attn_dp, given_slots=slots)


def _needs(i: PoolInputs, requests: int, tokens: int) -> tuple[int, int]:
    """Bytes that `requests` of `tokens` take of the state pool and of the KV pool, padding included."""
    steps = i.slot_bytes * i.draft_tokens * (requests + 1) if i.reserves_steps else 0
    rings = i.request_ring_bytes * (requests + 1)
    state = (requests * i.slots_per_request + 1) * i.per_slot + steps + rings if i.hybrid else 0
    rows = requests * request_tokens(i, tokens) // i.dcp
    return state, rows * max(i.cells) + i.scratch_bytes


def _slots(i: PoolInputs, need: int, tokens: int) -> Slots | None:
    def fits(slots: int) -> bool:
        return holds(replace(i, given_slots=slots * i.attn_dp), need, tokens)

    low = need * i.slots_per_request
    if not fits(low):
        return None
    return Slots(low * i.attn_dp, _last(fits, low, MOST_REQUESTS) * i.attn_dp)


def _ratios(i: PoolInputs, need: int, tokens: int) -> Ratios | None:
    if i.radix_off and i.asked is not None:
        return None  # the engine sizes by --max-running-requests and never looks at the ratio
    i = replace(i, given_slots=None)
    rest = rest_gib(i)

    def state_fits(ratio: float) -> bool:
        try:
            return state_share(replace(i, ratio=ratio), rest).slots >= need * i.slots_per_request
        except Rejected:
            return False

    def kv_short(ratio: float) -> bool:
        return not holds(replace(i, ratio=ratio), need, tokens)

    if not state_fits(HIGH_RATIO):
        return None
    least = LOW_RATIO if state_fits(LOW_RATIO) else _boundary(state_fits, LOW_RATIO, HIGH_RATIO)[1]
    low = _rounded(least, ROUND_CEILING)
    if kv_short(float(low)):
        return None
    most = HIGH_RATIO if not kv_short(HIGH_RATIO) else _boundary(kv_short, float(low), HIGH_RATIO)[0]
    return Ratios(low, max(low, _rounded(most, ROUND_FLOOR)))


def _boundary(holds_above: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Neighbouring doubles around the point from which `holds_above` is true: (last false, first true)."""
    while True:
        middle = (low * high) ** 0.5
        if not low < middle < high:
            return low, high
        if holds_above(middle):
            high = middle
        else:
            low = middle


def _rounded(value: float | Decimal, direction: str) -> Decimal:
    exact = Decimal(value)
    digits = Decimal(1).scaleb(exact.adjusted() - RATIO_DIGITS + 1)
    return exact.quantize(digits, rounding=direction)


def _last(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from `low` that fits, for a test that fails from some number on."""
    step = 1
    while low + step < high and fits(low + step):
        low, step = low + step, step * 2
    high = min(high, low + step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
