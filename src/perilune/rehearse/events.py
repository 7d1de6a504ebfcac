"""What happens next: one queue of instants for the whole fleet."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

STEP: Final = 0
"""At one instant, steps end before requests arrive, and a server that idles looks at its queue after both."""
ARRIVAL: Final = 1
WAKE: Final = 2

Handler = Callable[[int, Any], None]


class Events:
    """Handlers to be called with the instant and an argument, by instant, then order, then as they were added."""

    __slots__ = ("_added", "_heap", "now")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Handler, Any]] = []
        self._added = 0
        self.now = 0

    def at(self, time: int, order: int, handler: Handler, argument: Any = None) -> None:
        """Call `handler(time, argument)` then; `time` is in ticks and not before now."""
        self._added += 1
        heappush(self._heap, (time, order, self._added, handler, argument))

    def __bool__(self) -> bool:
        return bool(self._heap)

    def run(self, most: int) -> int:
        """Handle at most so many events; returns how many there were."""
        heap = self._heap
        for done in range(most):
            if not heap:
                return done
            time, _, _, handler, argument = heappop(heap)
            self.now = time
            handler(time, argument)
        return most
