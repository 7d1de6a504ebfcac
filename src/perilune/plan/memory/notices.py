"""What a boot prints about its pools, and what it does not notice, each of a kind that a program can ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from perilune.plan.memory.pools import GIB, Binds, PoolInputs, Sizing

LEAST_HEADROOM_BYTES = 10 * GIB  # what the engine itself keeps on cards above 60 GiB
SMALL_CARD_BYTES = 60 * GIB


class NoticeKind(StrEnum):
    """What a notice is about."""

    TOKENS = "tokens"  # --max-total-tokens is more than the memory gives
    STATE_CAP = "state-cap"  # the state pool caps the requests
    KV_CAP = "kv-cap"  # the KV pool caps the requests
    OVERCOMMITTED = "overcommitted"  # what is built exceeds what the fraction leaves
    HEADROOM = "headroom"  # little is left for graphs and activations


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence on a sizing, and its kind."""

    kind: NoticeKind
    text: str


def boot_notices(i: PoolInputs, sizing: Sizing) -> tuple[Notice, ...]:
    """The warnings this sizing prints at boot, in SGLang's words, so that a log matches the plan."""
    found = []
    if i.max_total_tokens is not None and i.max_total_tokens > min(sizing.profiled_tokens):
        text = (
            f"max_total_tokens={i.max_total_tokens} is larger than the profiled value "
            f"{min(sizing.profiled_tokens)}. Use the profiled value instead."
        )
        found.append(Notice(NoticeKind.TOKENS, text))
    asked = i.asked_per_worker
    if sizing.binds is Binds.STATE:
        text = (
            f"max_running_requests is capped to {sizing.requests} by the mamba state cache "
            f"(max_mamba_cache_size={sizing.slots}, {i.slots_per_request} state slots per request). "
            "To raise it: increase --mamba-full-memory-ratio or --max-mamba-cache-size, "
            "or halve the state size with --mamba-ssm-dtype bfloat16."
        )
        found.append(Notice(NoticeKind.STATE_CAP, text))
    elif asked is not None and sizing.requests < asked:
        text = (
            f"max_running_requests was reduced from the requested {asked} to {sizing.requests} "
            "(per dp worker) due to the available KV cache capacity."
        )
        found.append(Notice(NoticeKind.KV_CAP, text))
    return tuple(found)


def headroom_notice(left: int, reserve: int, total: int) -> Notice | None:
    """What to say of `left` bytes of the `reserve` that the fraction keeps, on a card of `total` bytes."""
    if left < 0:
        text = (
            f"The pools take {-left / GIB:.1f} GiB more than the {reserve / GIB:.1f} GiB that "
            "--mem-fraction-static leaves for graphs and activations: expect it to run out of memory."
        )
        return Notice(NoticeKind.OVERCOMMITTED, text)
    if left < reserve and left < LEAST_HEADROOM_BYTES and total > SMALL_CARD_BYTES:
        text = (
            f"Only {left / GIB:.1f} GiB stay for graphs and activations after what no budget covers; "
            "the engine's own default keeps at least 10 GiB."
        )
        return Notice(NoticeKind.HEADROOM, text)
    return None
