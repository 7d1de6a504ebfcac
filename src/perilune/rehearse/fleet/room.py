"""The room that a PD decode server sets apart for a request before its prompt is computed.

Rules of SGLang 0.5.23 (disaggregation/decode.py `DecodePreallocQueue`): requests are given room in order of arrival.
Rows are `max_running_requests` and `--disaggregation-decode-extra-slots` more, for those that run and those under way.
The KV pool must keep `--num-reserved-decode-tokens` for every request that has room, or what the longest running
request may still need if all others were retracted, whichever is more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perilune.errors import Refused
from perilune.plan.planned import PlannedPool
from perilune.rehearse.engine import Engine
from perilune.rehearse.live import Live
from perilune.rehearse.radix import Claim
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.rank import Rank
from perilune.rehearse.tally import Tally
from perilune.rehearse.ticks import TOKEN

CLIP_MAX_NEW_TOKENS: Final = 4096
"""What is counted of an answer at most (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""

NOT_MODELLED: Final = {
    "disaggregation_decode_enable_radix_cache": "--disaggregation-decode-enable-radix-cache keeps prefixes on decode",
    "disaggregation_decode_enable_offload_kvcache": "--disaggregation-decode-enable-offload-kvcache moves KV out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """What a decode server has beyond an `Engine`."""

    extra_slots: int  # disaggregation_decode_extra_slots
    reserved_tokens: int = 512  # num_reserved_decode_tokens
    backup: bool = True  # whether retracted requests keep their KV (disaggregation_decode_retraction_backup)


def decode_settings(item: PlannedPool) -> DecodeSettings:
    """Of a planned decode pool. Raises Refused for options that change the rules in ways that are not modelled."""
    v = item.resolved.values
    for field, what in NOT_MODELLED.items():
        if v[field]:
            raise Refused(f"{what}, which a rehearsal does not model.", where="decode pool")
    return DecodeSettings(
        extra_slots=v["disaggregation_decode_extra_slots"] or 0,
        reserved_tokens=v["num_reserved_decode_tokens"],
        backup=v["disaggregation_decode_retraction_backup"] != "none",
    )


class Place:
    """What is set apart for a request that does not run yet."""

    __slots__ = ("claim", "held", "seat", "since")

    def __init__(self, claim: Claim, held: int) -> None:
        self.claim = claim
        self.held = held
        self.since = 0  # when its KV had come
        self.seat = True  # whether it could run then


class DecodeRank(Rank):
    """The queue for room, and the requests between it and the running batch."""

    __slots__ = ("_ahead", "_settings", "arriving", "landed", "looked", "retracted", "seated")

    def __init__(self, engine: Engine, tally: Tally, settings: DecodeSettings) -> None:
        super().__init__(engine, tally)
        self._settings = settings
        slowest = min(rate for rate, _ in engine.acceptance)
        self._ahead = max(engine.reserve - slowest // TOKEN, 0) if engine.reserve else 0
        self.arriving: dict[Live, Place] = {}  # their KV is not here yet
        self.landed: deque[tuple[Live, Place]] = deque()
        self.retracted: deque[tuple[Live, int]] = deque()  # and since when
        self.seated = 0  # requests that were let in and have not left
        self.looked = 0  # how many of them there were when room was last looked for

    @property
    def between(self) -> int:
        """Requests that have room and do not run."""
        return len(self.arriving) + len(self.landed)

    def free(self, place: Place) -> None:
        """Give back what was set apart."""
        self.cache.free_tokens(place.held)
        self.cache.retract(place.claim, 0)
        self.rows -= 1

    def pages(self, tokens: int) -> int:
        """Tokens of the whole pages for so much KV and what a speculative step keeps ahead of it."""
        page = self.engine.page
        return -(-(tokens + self._ahead) // page) * page

    def too_large(self, live: Live) -> bool:
        """Whether not even an empty rank would set room apart for a request; the engine leaves it waiting."""
        reserved = self._settings.reserved_tokens
        most = max(self.pages(live.isl) + reserved, live.isl + min(live.osl, CLIP_MAX_NEW_TOKENS))
        return most > self.engine.tokens

    def grant(self, batches: Sequence[Batch], running: int, now: int) -> tuple[list[Live], bool]:
        """Give room to the head of the queue, and to those behind it, while there is some.

        Returns who got it, and whether the next can get none before a request leaves.
        """
        granted: list[Live] = []
        retractable = sum([batch.kv for batch in batches]) // TOKEN
        most = [live.isl + min(live.osl, CLIP_MAX_NEW_TOKENS) for batch in batches for _, _, live in batch.heap]
        longest = max(most, default=0) - retractable
        while self.queue:
            live = self.queue[0]
            if self._no_row:
                self.wait_for(self.engine.limit_cause, now)
                return granted, True
            pages = self.pages(live.isl)
            sure = pages + self._settings.reserved_tokens
            needed = max(sure, live.isl + min(live.osl, CLIP_MAX_NEW_TOKENS) - retractable)
            if needed > self._spare(running, longest):
                self.wait_for("kv_tokens", now)
                return granted, sure > self._spare(running)  # else it may fit as the others grow
            place = self._set_apart(live, pages)
            if place is None:
                self.wait_for("state_slots", now)
                return granted, True
            self.settle(now)
            self.queue.popleft()
            self.arriving[live] = place
            granted.append(live)
        return granted, False

    def resume(self, running: int, now: int) -> list[tuple[Live, Place]]:
        """Give room to retracted requests again, the first of them first."""
        resumed = []
        waits = self.tally.waits
        while self.retracted and not self._no_row:
            live, since = self.retracted[0]
            pages = self.pages(live.isl + live.out - 1)
            if pages + self._settings.reserved_tokens > self._spare(running):
                break
            place = self._set_apart(live, pages)
            if place is None:
                break
            self.retracted.popleft()
            waits["kv_tokens"] = waits.get("kv_tokens", 0) + now - since
            self.arriving[live] = place
            resumed.append((live, place))
        return resumed

    @property
    def _no_row(self) -> bool:
        return self.rows >= self.engine.requests + self._settings.extra_slots

    def _spare(self, running: int, longest: int = 0) -> int:
        """KV tokens that a new request may count on; `longest` is what a running one may still need."""
        return self.cache.tokens_free - max(self._settings.reserved_tokens * (running + self.between), longest)

    def _set_apart(self, live: Live, pages: int) -> Place | None:
        """Take a row, slots and pages; None where there are no slots, or a finished request still has the pages."""
        claim = Claim(live.claim.key)
        cache = self.cache
        cache.match(claim, 0)
        if not cache.take_slots((claim,)):
            return None
        if not cache.allocate_tokens(pages):
            cache.retract(claim, 0)
            return None
        self.rows += 1
        return Place(claim, pages)
