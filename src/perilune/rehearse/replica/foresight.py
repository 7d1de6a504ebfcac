"""Whether requests of known length fit the KV pool until each of them ends.

Source: SGLang 0.5.23 `managers/schedule_policy.py` (`add_one_req_ignore_eos`), used without a radix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perilune.rehearse.live import Live
from perilune.rehearse.replica.batch import Batch

SPARE: Final = 1
"""Tokens that stay free for every request (IGNORE_EOS_RESERVE_TOKENS)."""


class Foresight:
    """Tokens left and tokens held of every request, those that end first in front."""

    __slots__ = ("_asked", "_batch", "_joining", "_known")

    def __init__(self, batch: Batch, joining: Sequence[Live]) -> None:
        self._batch = batch
        self._joining = joining
        self._known: list[tuple[int, int]] = []
        self._asked = False

    def fits(self, live: Live, free: int, resumed: Sequence[Live]) -> bool:
        """Whether `free` tokens last until all have ended when this request joins; it is remembered either way.

        `resumed` is in the pass already when the first request is asked about.
        """
        mine = (live.osl - live.out, live.length)
        if not self._asked:
            self._asked = True
            known = [mine] if mine[0] > 0 else []
            known += [one for one in self._running(resumed) if one[0] > 0]
            self._known = sorted(known, key=lambda one: one[0])
        elif mine[0] > 0:
            self._insert(mine)
        freed = 0
        for at, (left, held) in enumerate(self._known):
            requests = len(self._known) - at
            if free + freed - left * requests <= SPARE * requests:
                return False
            freed += held
        return True

    def _running(self, resumed: Sequence[Live]) -> list[tuple[int, int]]:
        batch = self._batch
        running = []
        for _, _, live in batch.heap:
            out = batch.generated(live)
            running.append((live.osl - out, live.isl + out))
        return running + [(live.osl - live.out, live.length) for live in (*self._joining, *resumed)]

    def _insert(self, mine: tuple[int, int]) -> None:
        """The engine puts one that is longer than all others before the last of them."""
        known = self._known
        at = next((n for n, one in enumerate(known) if mine[0] <= one[0]), max(len(known) - 1, 0))
        known.insert(at, mine)
