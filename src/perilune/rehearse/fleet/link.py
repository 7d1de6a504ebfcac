"""What carries KV, states and embeddings between servers."""

from __future__ import annotations


class Link:
    """The NICs of one server, as one line: it carries what it is given in turn, however many peers it has.

    A transfer ends when both ends have carried their share of it; neither end waits for the other in between.
    """

    __slots__ = ("busy", "free")

    def __init__(self) -> None:
        self.free = 0  # when all that was given so far will be through
        self.busy = 0  # ticks of carrying, in all

    def carry(self, now: int, time: int) -> int:
        """Take `time` ticks of this line from now on; returns when they will be over."""
        free = self.free
        self.free = end = (now if now > free else free) + time
        self.busy += time
        return end

    def cut(self, now: int) -> None:
        """The server is lost: what was still to be carried is dropped."""
        if self.free > now:
            self.busy -= self.free - now
            self.free = now
