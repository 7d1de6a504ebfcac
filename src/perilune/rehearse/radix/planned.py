"""The prefix cache that a planned server's workers have."""

from __future__ import annotations

from typing import Any, Final

from perilune.errors import Refused, UnusableInput
from perilune.plan.planned import PlannedPool
from perilune.plan.resolve.mamba import KERNEL_CHUNK
from perilune.rehearse.radix.snapshots import Snapshots

OTHER_POOLS: Final = {
    "enable_unified_memory": "--enable-unified-memory lets both pools take each other's memory",
    "enable_int8_mamba_checkpoint": "--enable-int8-mamba-checkpoint keeps cached states in a pool of their own",
    "enable_session_radix_cache": "--enable-session-radix-cache evicts by open sessions",
}
"""What changes the rules of the two pools in ways that are not modelled."""


def slots_of(pool: PlannedPool) -> int | None:
    """State slots of one worker; None without states. A PD decode server builds them for requests in transfer too."""
    sizing = pool.ledger.sizing
    if sizing is None or sizing.slots is None or pool.pool.role != "decode":
        return None if sizing is None else sizing.slots
    built = [stage.allocated.slots for stage in pool.ledger.stages if stage.allocated is not None]
    return min(built, default=sizing.slots)


def cache_settings(pool: PlannedPool) -> dict[str, Any]:
    """What `RadixCache` takes, for one attention-DP worker of a pool; sizes come from its ledger.

    Raises UnusableInput for a pool that does not boot, and Refused where the engine's rules are not modelled.
    """
    sizing, resolved = pool.ledger.sizing, pool.resolved
    if sizing is None:
        raise UnusableInput(f"The {pool.pool.role} pool does not boot: {pool.ledger.error}")
    v = resolved.values
    for field, what in OTHER_POOLS.items():
        if v.get(field):
            raise Refused(f"{what}, which a rehearsal does not model.", where=f"{pool.pool.role} pool")
    dcp = max(v["dcp_size"], 1)
    hybrid, page = sizing.slots is not None, v["page_size"] * dcp
    if hybrid and v["mamba_radix_cache_strategy"] == "no_buffer" and not v["disable_radix_cache"] and page > 1:
        raise Refused(
            f"no_buffer keeps states of any length and needs pages of one token, and here they have {page}: the engine "
            "stops when it makes its prefix cache.",
            where=f"{pool.pool.role} pool",
            fix="Give --mamba-radix-cache-strategy extra_buffer.",
        )
    return {
        "tokens": sizing.logical_tokens,
        "page": page,
        "slots": slots_of(pool),
        "snapshots": Snapshots.of(
            v["mamba_radix_cache_strategy"],
            page_size=v["page_size"],
            dcp=dcp,
            kernel_chunk=resolved.model.raw.get("mamba_chunk_size", KERNEL_CHUNK),
            track_interval=v["mamba_track_interval"],
            overlap=not v["disable_overlap_schedule"],
        )
        if hybrid and not v["disable_radix_cache"]
        else None,
        "skip_decode_lock": resolved.flag_env("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"),
        "max_states_per_path": v["mamba_max_states_per_path"],
        "policy": v["radix_eviction_policy"],
        "policy_config": v["radix_eviction_policy_config"],
        "disabled": bool(v["disable_radix_cache"]),
    }
