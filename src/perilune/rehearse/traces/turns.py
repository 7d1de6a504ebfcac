"""Sessions of turns: each comes a think time after the one before it finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perilune.rehearse.request import Request


def chained(turns: Iterable[Request]) -> Request | None:
    """The first of the turns, linked to the others in order; None without turns."""
    first: Request | None = None
    last: Request | None = None
    for turn in turns:
        if last is None:
            first = turn
        else:
            last.then = turn
        last = turn
    return first


def turns(head: Request) -> Iterator[Request]:
    """A first turn and those that follow it."""
    turn: Request | None = head
    while turn is not None:
        yield turn
        turn = turn.then


def limited(heads: Iterator[Request], limit: int) -> Iterator[Request]:
    """The first requests of a trace, later turns counted: `limit` in all."""
    left = limit
    for head in heads:
        for turn in turns(head):
            left -= 1
            if left == 0:
                turn.then = None
        yield head
        if left == 0:
            return
