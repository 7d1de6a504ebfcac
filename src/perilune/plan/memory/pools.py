"""How SGLang 0.5.23 divides one GPU's memory into a state pool and a KV pool, and what it then admits.

Pure arithmetic over `PoolInputs`, exact to the last slot and token. A double is divided, floored and
truncated where the engine does so, hence the explicit `int(a // b)` on floats.
Source: `mem_cache/kv_cache_configurator.py`, `model_executor/pool_configurator.py`.
"""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from perilune.plan.resolve.state import Rejected

GIB = 1 << 30
INT64_MAX = (1 << 63) - 1
AUTOMATIC_LOW, AUTOMATIC_HIGH = 2048, 4096  # the engine's own request limit when none is given


class Binds(StrEnum):
    """What decides how many requests run: a pool, or the limit that was asked for (or is automatic)."""

    STATE = "state"
    KV = "kv"
    ASKED = "asked"


class PoolInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything pool sizing reads. Bytes are per GPU; slots and requests per attention-DP worker.

    A model without recurrent state has `slot_bytes` 0 and no state pool.
    """

    free_gib: float  # A: free after target and draft weights, minimum over ranks
    before_gib: float  # P: free before weights are loaded, minimum over ranks
    fraction: float  # --mem-fraction-static
    mm_gib: float = 0.0  # kept for multimodal features and embeddings
    slot_bytes: int = 0  # s: one state slot on the stage with most linear layers
    ring_bytes: int = 0  # x: one slot's ReplaySSM ring there
    request_ring_bytes: int = 0  # the ring of models that keep it per request, not per slot
    slots_per_request: int = 1  # S
    ratio: float = 0.9  # --mamba-full-memory-ratio
    given_slots: int | None = None  # --max-mamba-cache-size, whole server
    asked: int | None = None  # --max-running-requests, whole server
    radix_off: bool = False
    reserves_steps: bool = False  # R: verification keeps a state per draft token
    draft_tokens: int = 0  # D: verified per request and step; 0 without speculation
    attn_dp: int = 1
    cells: tuple[int, ...] = (1,)  # KV bytes per token row, one per PP stage; 0 on a stage without KV
    scratch_bytes: int = 0  # fixed bytes taken from the KV budget
    page: int = 1
    context: int = 1
    dcp: int = 1
    max_total_tokens: int | None = None

    @property
    def hybrid(self) -> bool:
        """Whether the model keeps recurrent state."""
        return self.slot_bytes > 0

    @property
    def per_slot(self) -> int:
        """Bytes of one slot with its ring: s + x."""
        return self.slot_bytes + self.ring_bytes

    @property
    def asked_per_worker(self) -> int | None:
        """The request limit of one attention-DP worker, None when automatic."""
        return None if self.asked is None else max(1, self.asked // self.attn_dp)


class StateShare(msgspec.Struct, frozen=True):
    """How the state pool was sized: K slots, bytes set aside for per-step states, GiB left for KV."""

    slots: int
    reserve_bytes: int
    pool_bytes: int
    kv_gib: float
    rule: str  # given | requests | ratio


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine decides at boot. Token counts are rows of one rank unless called logical."""

    rest_gib: float
    state: StateShare | None
    kv_bytes: int
    profiled_tokens: tuple[int, ...]  # what each PP stage could hold, before --max-total-tokens
    tokens: int  # max_total_num_tokens
    logical_tokens: int  # tokens requests can use: rows x DCP
    automatic: int  # the request limit used when none is given
    requests: int  # max_running_requests, per attention-DP worker
    binds: Binds
    micro_batch: int  # default of --pp-max-micro-batch-size

    @property
    def slots(self) -> int | None:
        """K, or None for a model without state."""
        return None if self.state is None else self.state.slots


def slots_per_request(*, radix_off: bool, strategy: str, overlap_off: bool, skip_decode_lock: bool) -> int:
    """State slots one request may hold: its own, the cached one, the tracking ones.

    Raises Rejected where the engine asserts: the lazy buffer needs the overlap schedule.
    """
    if radix_off:
        return 1
    base = 2 if skip_decode_lock else 3
    if strategy == "extra_buffer_lazy":
        if overlap_off:
            raise Rejected(
                "AssertionError: Lazy extra buffer requires overlap schedule "
                "(--disable-overlap-schedule is incompatible)",
                stage="pools",
            )
        return base + 1
    if strategy == "extra_buffer":
        return base + (1 if overlap_off else 2)
    return 3


def rest_gib(i: PoolInputs) -> float:
    """GiB for both pools: free after weights, less the reserve for graphs and activations, less mm."""
    return i.free_gib - i.before_gib * (1 - i.fraction) - i.mm_gib


def state_share(i: PoolInputs, rest: float) -> StateShare:
    """Size the state pool out of `rest` GiB; raises Rejected when not one slot fits."""
    asked = i.asked_per_worker
    steps = i.slot_bytes * i.draft_tokens if i.reserves_steps else 0  # bytes per request verified
    fixed = _request_rings(i)
    if i.given_slots is not None:
        rule, slots = "given", i.given_slots // i.attn_dp
    elif i.radix_off and asked is not None:
        rule, slots = "requests", asked
    else:
        rule, slots = "ratio", _slots_by_ratio(i, rest, fixed)
    reserve = 0
    if steps:
        verified = slots if rule == "requests" else min(asked or 1, slots // i.slots_per_request)
        reserve = steps * (verified + 1)
        rest = rest - reserve / GIB
    if slots <= 0:
        raise Rejected(
            "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
            f"Computed max_mamba_cache_size={slots} "
            f"(total_rest_memory={rest:.2f} GB, mamba_cache_per_req={i.slot_bytes / (1 << 20):.2f} MB). "
            "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, "
            "(3) reduce --speculative-num-draft-tokens, or (4) use GPUs with more memory.",
            stage="pools",
        )
    pool = (slots + 1) * i.per_slot + fixed
    return StateShare(slots, reserve, pool, rest - pool / GIB, rule)


def _request_rings(i: PoolInputs) -> int:
    if not i.request_ring_bytes:
        return 0
    if i.asked_per_worker is None:
        raise Rejected("TypeError: unsupported operand type(s) for //: 'NoneType' and 'int'", stage="pools")
    return i.request_ring_bytes * (i.asked_per_worker + 1)


def _slots_by_ratio(i: PoolInputs, rest: float, fixed: int) -> int:
    budget = rest * i.ratio / (1 + i.ratio) * GIB
    if i.reserves_steps:
        s, x, d = i.slot_bytes, i.ring_bytes, i.draft_tokens
        return int((budget - s * (1 + d) - x) // (s * (1 + d / i.slots_per_request) + x))
    return int((budget - fixed - i.per_slot) // i.per_slot)


def kv_budget_bytes(i: PoolInputs, kv_gib: float) -> int:
    """Whole bytes for KV; raises Rejected when the weights leave nothing under this memory fraction."""
    if kv_gib <= 0:
        least = 1 - i.free_gib / i.before_gib if i.before_gib else math.inf
        suggested = math.ceil(least * 1000) / 1000 if math.isfinite(least) else least
        raise Rejected(
            "ValueError: Loaded weights leave no GPU memory for the KV cache under "
            f"--mem-fraction-static={i.fraction}. Raise --mem-fraction-static above {suggested:.3f} "
            f"(minimum viable = 1 - available/pre = {least:.4f}). "
            "If using speculative decoding, draft weights are now counted.",
            stage="pools",
        )
    return int(kv_gib * GIB)


def profiled_tokens(i: PoolInputs, kv_bytes: int) -> tuple[int, ...]:
    """Whole pages each PP stage could hold; raises Rejected where that is none."""
    usable = max(kv_bytes - i.scratch_bytes, 0)
    found = []
    for cell in i.cells:
        if cell:
            rows = usable // cell
        elif any(i.cells):
            rows = INT64_MAX  # another stage decides
        else:
            rows = i.max_total_tokens or i.context
        found.append(_some(rows // i.page * i.page))
    return tuple(found)


def _some(tokens: int) -> int:
    if tokens <= 0:
        raise Rejected("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", stage="pools")
    return tokens


def automatic_requests(tokens: int, context: int) -> int:
    """The engine's own request limit when none is given."""
    return max(min(int(tokens / context * 512), AUTOMATIC_HIGH), AUTOMATIC_LOW)


def admitted(i: PoolInputs, tokens: int, slots: int | None) -> tuple[int, Binds]:
    """Requests one worker runs at once, and what decides it; raises Rejected when not even one."""
    asked = i.asked_per_worker
    limit = automatic_requests(tokens, i.context) if asked is None else asked
    requests, binds = limit, Binds.ASKED
    if tokens // 2 < requests:
        requests, binds = tokens // 2, Binds.KV
    if slots is None:
        return requests, binds
    by_state = slots // i.slots_per_request
    if by_state < requests:
        requests, binds = by_state, Binds.STATE
    if requests <= 0:
        raise Rejected(
            "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
            f"max_mamba_cache_size={slots}, mamba_ratio={i.slots_per_request}, "
            f"resulting max_num_reqs={requests}. "
            "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, "
            "or (3) use GPUs with more memory.",
            stage="pools",
        )
    return requests, binds


def size_pools(i: PoolInputs) -> Sizing:
    """Size both pools of every PP stage; raises Rejected with the engine's own text."""
    rest = rest_gib(i)
    share = state_share(i, rest) if i.hybrid else None
    kv_bytes = kv_budget_bytes(i, rest if share is None else share.kv_gib)
    profiled = profiled_tokens(i, kv_bytes)
    tokens = min(profiled)
    if i.max_total_tokens is not None and i.max_total_tokens < tokens:
        tokens = _some(i.max_total_tokens // i.page * i.page)
    slots = None if share is None else share.slots
    requests, binds = admitted(i, tokens, slots)
    return Sizing(
        rest_gib=rest,
        state=share,
        kv_bytes=kv_bytes,
        profiled_tokens=profiled,
        tokens=tokens,
        logical_tokens=tokens * i.dcp,
        automatic=automatic_requests(tokens, i.context),
        requests=requests,
        binds=binds,
        micro_batch=max(requests // len(i.cells), 1),
    )
