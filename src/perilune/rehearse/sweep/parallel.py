"""Points in parallel processes. What comes out does not depend on how many there are."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Final, TypeVar

from perilune.errors import PeriluneError

T = TypeVar("T")
R = TypeVar("R")

AHEAD: Final = 2
"""Tasks given out for each process: enough that none waits, few enough that Ctrl-C loses little."""


def default_jobs() -> int:
    """One process for each core that this one may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def each_done(work: Callable[[T], R], tasks: Sequence[T], jobs: int) -> Iterator[tuple[int, R]]:
    """The index and the result of each task as it finishes; with one job in this very process.

    An exception of a task, or Ctrl-C, ends the other processes. To be called from the main thread, for its signals.
    """
    if jobs <= 1 or len(tasks) <= 1:
        for index, task in enumerate(tasks):
            yield index, work(task)
        return
    with _pool(min(jobs, len(tasks))) as pool:
        running: dict[Future[R], int] = {}
        given = 0
        while running or given < len(tasks):
            with _interrupts_held():
                while given < len(tasks) and len(running) < jobs * AHEAD:
                    running[pool.submit(work, tasks[given])] = given
                    given += 1
            for future in sorted(wait(running, return_when=FIRST_COMPLETED).done, key=running.__getitem__):
                index = running.pop(future)
                try:
                    yield index, future.result()
                except BrokenProcessPool:
                    raise PeriluneError(
                        "A process of the sweep was killed, most likely for want of memory.", fix="Use fewer --jobs."
                    ) from None


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a process that ends must not end this one
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    try:
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        signal.signal(signal.SIGPIPE, before)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits; processes started meanwhile never see it, for it is the parent's to handle."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
