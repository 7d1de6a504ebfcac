"""How many decode steps in a row change nothing that could be decided otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.rehearse.replica.lane import Lane


def stretch(lanes: Sequence[Lane], most: int, ahead: int) -> int:
    """Steps until a request finishes or a KV pool is full, at most `most`; 1 where something may be decided before.

    Pages are seen to `ahead` steps before they are needed.
    """
    steps = most
    for lane in lanes:
        rank = lane.rank
        if lane.flight is not None or lane.ghosts or rank.chunked is not None:
            return 1
        if rank.queue and not lane.batch.full:
            return 1
        if lane.decodes:
            batch = lane.batch
            left = batch.heap[0][0] - batch.steps if batch.heap else 1
            if left < steps:
                steps = left
    if steps <= 1:
        return 1
    fits = steps + ahead
    for rank in dict.fromkeys(lane.rank for lane in lanes):
        decoding = [lane for lane in lanes if lane.rank is rank and lane.decodes]
        fits = _fits(decoding, rank.room + sum(lane.taken for lane in decoding), fits)
    return max(fits - ahead, 1)


def _fits(lanes: Sequence[Lane], room: int, most: int) -> int:
    """How many steps, at most `most` and at least one, the lanes of one rank can make with `room` KV tokens."""
    if sum(lane.batch.most_needed(most) for lane in lanes) <= room:
        return most
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if sum(lane.batch.needs(middle) for lane in lanes) <= room:
            low = middle
        else:
            high = middle
    return low
