"""Series read for charts: where bins lie, counts as rates, gauges of a role. The end may cut the last bin short."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.rehearse.outcome import Outcome, Series

PLACES = {"unified": "running", "prefill": "at prefill", "decode": "at decode"}
"""Requests that run on the servers of a role; on prefill they hold their place until their KV is sent."""


def middles(series: Series) -> list[float]:
    """The middle of every bin, seconds."""
    return [(index + 0.5) * series.bin_s for index in range(len(series.running))]


def per_second(series: Series, counts: Sequence[int], duration_s: float) -> list[float]:
    """Counts of each bin as rates over the part of it that the run of `duration_s` reached."""
    return [
        count / min(series.bin_s, rest) if (rest := duration_s - index * series.bin_s) > 0 else 0.0
        for index, count in enumerate(counts)
    ]


def busy_by_role(found: Outcome) -> dict[str, list[float]]:
    """Requests on the servers of each role over the bins of the fleet, by the name of the place."""
    roles = dict.fromkeys(one.role for one in found.replicas)
    if len(roles) < 2:
        return {PLACES["unified"]: list(found.series.running)}
    width, count = found.series.bin_s, len(found.series.running)
    return {
        PLACES.get(role, role): [
            sum(parts)
            for parts in zip(
                *(_widened(one.series, width, count, found.duration_s) for one in found.replicas if one.role == role),
                strict=True,
            )
        ]
        for role in roles
    }


def _widened(of: Series, width: float, count: int, duration_s: float) -> list[float]:
    """What ran on a server, as time-weighted means of `count` bins of a width that is a multiple of its own."""
    areas = [0.0] * count
    for index, running in enumerate(of.running):
        start = index * of.bin_s
        spent = max(min(of.bin_s, duration_s - start), 0.0)
        areas[min(int((start + of.bin_s / 2) / width), count - 1)] += running * spent
    return [area / span if (span := min(width, duration_s - at * width)) > 0 else 0.0 for at, area in enumerate(areas)]
