"""One server as the simulation knows it: its limits and scheduling flags, and nothing of its speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from perilune.errors import UnusableInput
from perilune.facts.timing import latencies
from perilune.plan.memory.pools import Binds
from perilune.plan.planned import PlannedPool
from perilune.plan.resolve.mamba import KERNEL_CHUNK
from perilune.rehearse.acceptance import Mix
from perilune.rehearse.environment import real, whole
from perilune.rehearse.radix import RadixCache
from perilune.rehearse.ticks import TOKEN

LIMIT_CAUSE: Final = {Binds.STATE: "state_slots", Binds.KV: "kv_tokens", Binds.ASKED: "request_limit"}
"""What a request waits for when as many run as may: what the ledger says set that limit."""

SCHEDULE_POLICIES: Final = ("fcfs", "lpm", "lof")
"""Those that are modelled; without a radix cache `lpm` is `fcfs`, as in the engine."""

UNMODELLED: Final = (
    "prefill_decode_interval",
    "min_free_slots_delay",
    "enable_prefill_delayer",
    "enable_dynamic_chunking",
    "pp_async_batch_depth",
    "enable_unified_memory",
    "enable_pdmux",
    "enable_hisparse",
    "enable_lmcache",
    "dllm_algorithm",
)
"""Flags that change what is scheduled in ways that a rehearsal does not follow."""

SHARE: Final = 10**9
"""The unit of the new-token ratio: whole billionths, so that many decays at once equal one after the other."""

INIT_NEW_TOKEN_RATIO: Final = 0.7
MIN_NEW_TOKEN_RATIO_FACTOR: Final = 0.14
NEW_TOKEN_RATIO_DECAY_STEPS: Final = 600
RETRACT_DECODE_STEPS: Final = 20
CLIP_MAX_NEW_TOKENS: Final = 4096
"""Defaults of SGLANG_* variables of the same names (`environ.py`, `managers/schedule_policy.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One server of a pool. Limits are those of one attention-DP rank; tokens are logical (rows x DCP)."""

    name: str  # of the pool, such as unified or prefill
    role: str
    gpus: int
    new_cache: Callable[[], RadixCache]  # both pools of one rank, empty
    requests: int  # max_running_requests
    tokens: int
    slots: int  # 0 without a state pool
    context: int
    page: int  # of the allocator: page_size x dcp_size
    page_size: int  # of the scheduler
    chunk: int | None  # chunked_prefill_size; None when prompts are never split
    max_prefill: int  # max_prefill_tokens
    ranks: int = 1  # attention-DP
    lanes: int = 1  # pp_size
    micro_batch: int = 1 << 30  # pp_max_micro_batch_size
    overlap: bool = True
    mixed: bool = False  # enable_mixed_chunk
    align: int = 1  # a cut prompt ends on a multiple of this
    limit_cause: str = "request_limit"
    schedule_policy: str = "fcfs"
    refreshes: bool = True  # what waiting requests have in the cache counts as used now and then
    load_balance: str = "round_robin"
    prefill_max_requests: int | None = None
    max_queued: int | None = None
    truncates: bool = False  # allow_auto_truncate
    speculates: bool = False
    acceptance: tuple[tuple[int, int], ...] = ((TOKEN, 1),)  # thousandths of a token a step, and how often
    reserve: int = 0  # KV tokens a speculative step keeps ahead of what is committed
    ignore_eos: bool = True  # requests run to the length they ask for, and the engine knows
    ratio: int = SHARE  # new-token ratio at rest, in billionths
    ratio_min: int = SHARE
    ratio_decay: int = 0  # a decode step
    clip: int = CLIP_MAX_NEW_TOKENS
    retract_steps: int = RETRACT_DECODE_STEPS
    late: int = 0  # of the prefill behind it, the share (in thousandths) after which a first token is seen

    @property
    def admitted_max(self) -> int:
        """Requests the whole server runs at once."""
        return self.requests * self.ranks


def acceptance_of(mix: Mix) -> tuple[tuple[int, int], ...]:
    """Acceptance lengths (tokens a step, and how often) as `Engine.acceptance` holds them."""
    return tuple((round(length * TOKEN), weight) for length, weight in mix)


def engine_of(
    item: PlannedPool,
    new_cache: Callable[[], RadixCache],
    *,
    acceptance: tuple[tuple[int, int], ...] | None = None,
    ignore_eos: bool = True,
) -> Engine:
    """The server of a planned pool that boots; `acceptance` is needed where it speculates.

    Raises UnusableInput for flags whose effect is not modelled, ValueError for a pool that does not boot and for
    speculation without an acceptance length.
    """
    sizing, inputs = item.ledger.sizing, item.ledger.inputs
    if sizing is None or inputs is None:
        raise ValueError(f"the {item.pool.role} pool does not boot: {item.ledger.error}")
    v, env = item.resolved.values, item.resolved.env
    _check_modelled(v)
    speculates = v["speculative_algorithm"] is not None
    if speculates and acceptance is None:
        raise ValueError("a server that speculates needs an acceptance length")
    chunk = v["chunked_prefill_size"]
    dcp = max(v["dcp_size"], 1)
    snapshots = sizing.slots is not None and not v["disable_radix_cache"]
    start = min(real(env, "SGLANG_INIT_NEW_TOKEN_RATIO", INIT_NEW_TOKEN_RATIO) * v["schedule_conservativeness"], 1)
    factor = real(env, "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR", MIN_NEW_TOKEN_RATIO_FACTOR)
    steps = whole(env, "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS", NEW_TOKEN_RATIO_DECAY_STEPS)
    ratio, least = round(start * SHARE), round(min(start * factor, 1) * SHARE)
    draft = max(v["speculative_num_steps"] or 0, v["speculative_num_draft_tokens"] or 0)
    return Engine(
        name=item.pool.role,
        role=item.pool.role,
        gpus=item.pool.gpus,
        new_cache=new_cache,
        requests=sizing.requests,
        tokens=sizing.logical_tokens,
        slots=sizing.slots or 0,
        context=inputs.context,
        page=v["page_size"] * dcp,
        page_size=v["page_size"],
        chunk=chunk if chunk is not None and chunk > 0 else None,
        max_prefill=v["max_prefill_tokens"],
        ranks=v["attn_dp_size"],
        lanes=v["pp_size"],
        micro_batch=sizing.micro_batch,
        overlap=not v["disable_overlap_schedule"] and v["pp_size"] == 1,
        mixed=bool(v["enable_mixed_chunk"]),
        align=max(KERNEL_CHUNK, v["page_size"]) if snapshots and dcp > 1 else 1,
        limit_cause=LIMIT_CAUSE[sizing.binds],
        schedule_policy=v["schedule_policy"],
        refreshes=v["radix_eviction_policy"].lower() == "lru" and v["disaggregation_mode"] != "decode",
        load_balance=v["load_balance_method"],
        prefill_max_requests=v["prefill_max_requests"],
        max_queued=v["max_queued_requests"],
        truncates=bool(v["allow_auto_truncate"]),
        speculates=speculates,
        acceptance=acceptance if speculates and acceptance is not None else ((TOKEN, 1),),
        reserve=2 * draft if speculates else 0,
        ignore_eos=ignore_eos,
        ratio=SHARE if ignore_eos else ratio,
        ratio_min=SHARE if ignore_eos else least,
        ratio_decay=0 if ignore_eos else (ratio - least) // max(steps, 1),
        clip=whole(env, "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", CLIP_MAX_NEW_TOKENS),
        retract_steps=whole(env, "SGLANG_RETRACT_DECODE_STEPS", RETRACT_DECODE_STEPS),
        late=_late(item),
    )


def _late(item: PlannedPool) -> int:
    """How late the overlap scheduler sees a first token, in thousandths of the prefill it launched behind it.

    Results are looked at once the next batch is launched (`event_loop_overlap`). The kernels of a prefill without a
    CUDA graph are queued one by one, and only so many wait for the device: the last is queued when the device has come
    that near to the end. `SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP` looks before it launches.
    """
    v = item.resolved.values
    graphs = v["cuda_graph_config"].prefill.backend != "disabled"
    if graphs or v["disable_overlap_schedule"] or v["pp_size"] > 1:
        return 0
    if item.resolved.flag_env("SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP"):
        return 0
    known = latencies()
    launches = known.layer_launches.value * item.ledger.geometry.num_layers
    return max(0, round(TOKEN * (1 - known.launch_queue.value / launches)))


def _check_modelled(values: Mapping[str, Any]) -> None:
    for name in UNMODELLED:
        if values[name]:
            raise _unmodelled(name, f"What --{name.replace('_', '-')} does to scheduling is not modelled.")
    policy = values["schedule_policy"]
    if policy not in SCHEDULE_POLICIES:
        raise _unmodelled("schedule_policy", f"The schedule policy {policy!r} is not modelled.")


def _unmodelled(name: str, message: str) -> UnusableInput:
    flag = "--" + name.replace("_", "-")
    return UnusableInput(message, where=flag, fix=f"Rehearse without it: --unset={flag}.")
