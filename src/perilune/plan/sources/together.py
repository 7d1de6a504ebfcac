"""Which servers run together: those of ways that do not exclude each other, and the pairs among them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Literal

from perilune.plan.sources.found import Note
from perilune.plan.sources.ways import groups, meet

if TYPE_CHECKING:
    from perilune.plan.sources.judge import Judged

Side = Literal["", "prefill", "decode"]

MOST_PAIRS = 1024
MOST_LOOKED_AT = 500_000
_PLAIN = (None, "0")


class Together:
    """The fleets and pairs among servers of inputs that belong together, by the servers' numbers.

    A server of which not all flags are known is in none. Where a pair was asked for, only that is formed.
    """

    def __init__(self, servers: Sequence[Judged]) -> None:
        self._servers = servers
        sides = any(one.side for one in servers)
        self._known = [i for i, one in enumerate(servers) if not one.found.unread and (one.side or not sides)]
        self._ways = [
            tuple({f"{one.source}: {subject}": choice for subject, choice in way.items()} for way in one.found.ways)
            for one in servers
        ]

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Every prefill with every decode that runs with it, the head of each alone where heads are known."""
        return self._pairs[0]

    @cached_property
    def groups(self) -> list[list[int]]:
        """The largest sets of servers that run together."""
        found = [[self._known[i] for i in group] for group in self._grouped[0]]
        return [group for group in found if len(group) > 1]

    @property
    def notes(self) -> list[Note]:
        """What was left out because there was too much of it."""
        said = []
        if not self._pairs[1]:
            said.append(f"It has more pairs of prefill and decode servers than the {len(self.pairs):,} checked.")
        if not self._grouped[1]:
            said.append("Its ways and names make more fleets than are checked.")
        return [Note(text, 1) for text in said]

    @cached_property
    def _grouped(self) -> tuple[list[list[int]], bool]:
        return groups([self._ways[i] for i in self._known])

    @cached_property
    def _pairs(self) -> tuple[list[tuple[int, int]], bool]:
        heads = {i for i in self._known if self._servers[i].found.server.value("--node-rank") in _PLAIN}
        every = product(self._of_side("prefill", heads), self._of_side("decode", heads))
        found: list[tuple[int, int]] = []
        for looked, (p, d) in enumerate(every):
            if looked == MOST_LOOKED_AT or len(found) == MOST_PAIRS:
                return found, False
            if meet(self._ways[p], self._ways[d]):
                found.append((p, d))
        return found, True

    def _of_side(self, side: str, heads: set[int]) -> list[int]:
        mine = [i for i in self._known if (self._servers[i].side or self._servers[i].subject.role) == side]
        return [i for i in mine if i in heads] or mine


def take_sides(prefill: Sequence[Judged], decode: Sequence[Judged]) -> list[Judged]:
    """The servers of two inputs with their parts in the pair: those of the role, else all that there are."""
    from dataclasses import replace

    found = []
    sides: tuple[tuple[Side, Sequence[Judged]], ...] = (("prefill", prefill), ("decode", decode))
    for source, (side, servers) in enumerate(sides):
        right = [one.subject.role == side for one in servers]
        for one, fits in zip(servers, right, strict=True):
            found.append(replace(one, source=source, side=side if fits or not any(right) else ""))
    return found
