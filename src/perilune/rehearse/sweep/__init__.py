"""A grid of rehearsals in parallel processes, and the frontier of throughput against interactivity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perilune.rehearse.sweep.frontier import Swept, swept
from perilune.rehearse.sweep.grid import Point, Servers, points
from perilune.rehearse.sweep.parallel import default_jobs, each_done
from perilune.rehearse.sweep.rehearsed import Result, rehearsed
from perilune.rehearse.sweep.store import Store, keys_of

__all__ = ["Point", "Servers", "Swept", "default_jobs", "points", "run"]


def run(
    grid: Sequence[Point],
    *,
    jobs: int = 1,
    store: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Swept, ...], int]:
    """The finished points in the order of the grid, and how many were not reached because of Ctrl-C.

    With `store`, points that the file already has are not run again, and each new one is appended as it finishes.
    `progress` is told how many of how many are done. Raises UnusableInput for input that no point could use.
    """
    results: list[Result | None] = [None] * len(grid)
    kept = None if store is None else Store(store)
    try:
        keys = keys_of(grid) if kept is not None else []
        if kept is not None:
            results = [kept.get(key) for key in keys]
        wanted = [index for index, result in enumerate(results) if result is None]
        tell = progress or (lambda done, total: None)
        tell(len(grid) - len(wanted), len(grid))
        try:
            done = each_done(rehearsed, [grid[index] for index in wanted], jobs)
            for count, (place, result) in enumerate(done, 1):
                index = wanted[place]
                results[index] = result
                if kept is not None:
                    kept.add(keys[index], grid[index], result)
                tell(len(grid) - len(wanted) + count, len(grid))
        except KeyboardInterrupt:
            pass
        else:
            if kept is not None:
                kept.put_in_order(keys)
    finally:
        if kept is not None:
            kept.close()
    return swept(grid, results), sum(result is None for result in results)
