"""A series read for charts: where its bins lie, and counts as rates. The last bin may be cut short by the end."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.rehearse.outcome import Series


def middles(series: Series) -> list[float]:
    """The middle of every bin, seconds."""
    return [(index + 0.5) * series.bin_s for index in range(len(series.running))]


def per_second(series: Series, counts: Sequence[int], duration_s: float) -> list[float]:
    """Counts of each bin as rates over the part of it that the run of `duration_s` reached."""
    return [
        count / min(series.bin_s, rest) if (rest := duration_s - index * series.bin_s) > 0 else 0.0
        for index, count in enumerate(counts)
    ]
