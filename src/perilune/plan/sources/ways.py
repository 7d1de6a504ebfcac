"""Ways through a script: what each takes for granted, and which can be gone at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MOST_GROUPS = 256
MOST_KINDS = 256
MOST_WAYS = 32

Values = frozenset[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a way takes one text to be: one of `among` (None: anything), and none of `never`."""

    among: Values | None = None
    never: Values = frozenset()

    def narrowed(self, values: Values, holds: bool) -> Choice | None:
        """The choice when the text is (or is not) one of `values` as well; None where it cannot be."""
        if holds:
            left = (values if self.among is None else self.among & values) - self.never
            return Choice(left, self.never) if left else None
        never = self.never | values
        if self.among is None:
            return Choice(None, never)
        left = self.among - never
        return Choice(left, never) if left else None

    def meets(self, other: Choice) -> bool:
        """Whether one text can be as both say."""
        if self.among is not None and other.among is not None:
            return bool((self.among & other.among) - self.never - other.never)
        known = self.among if self.among is not None else other.among
        return known is None or bool(known - self.never - other.never)


Way = Mapping[str, Choice]
Ways = tuple[Way, ...]
ANY_WAY: Ways = ({},)


def meet(one: Ways, other: Ways) -> bool:
    """Whether some way of each can be gone by one run of what they lead through."""
    return any(_meet(mine, yours) for mine in one for yours in other)


def _meet(one: Way, other: Way) -> bool:
    return all(choice.meets(other[subject]) for subject, choice in one.items() if subject in other)


def both(one: Ways, other: Ways) -> Ways:
    """The ways of either; of many, what they take for granted alike."""
    every = [*one, *(way for way in other if way not in one)]
    if len(every) <= MOST_WAYS:
        return tuple(every)
    alike = dict(every[0])
    for way in every[1:]:
        alike = either(alike, way)
    return (alike,)


def either(one: Way, other: Way) -> dict[str, Choice]:
    """What both ways take for granted alike."""
    found = {}
    for subject, choice in one.items():
        second = other.get(subject)
        if second is None:
            continue
        among = None if choice.among is None or second.among is None else choice.among | second.among
        both = Choice(among, choice.never & second.never - (among or frozenset()))
        if both != Choice():
            found[subject] = both
    return found


def groups(every: Sequence[Ways]) -> tuple[list[list[int]], bool]:
    """The largest sets of what can be reached together, by their numbers, and whether those are all.

    Things that are reached by the same ways are alike, so that the search is among the different ones.
    """
    members: dict[frozenset[frozenset[tuple[str, Choice]]], list[int]] = {}
    for number, ways in enumerate(every):
        members.setdefault(frozenset(frozenset(way.items()) for way in ways), []).append(number)
    alike = list(members.values())
    if len(alike) < 2:
        return ([alike[0]] if alike else []), True
    kinds = [tuple(dict(way) for way in key) for key in members]
    if len(kinds) > MOST_KINDS:
        free = [number for kind, numbers in zip(kinds, alike, strict=True) if {} in kind for number in numbers]
        return [sorted([*numbers, *free]) for kind, numbers in zip(kinds, alike, strict=True) if {} not in kind], False
    near = [{j for j, other in enumerate(kinds) if i != j and meet(one, other)} for i, one in enumerate(kinds)]
    found: list[list[int]] = []
    for clique in _cliques(near):
        if len(found) == MOST_GROUPS:
            return found, False
        found.append(sorted(number for kind in clique for number in alike[kind]))
    return sorted(found), True


def _cliques(near: Sequence[set[int]]) -> Iterator[tuple[int, ...]]:
    """The maximal cliques of a graph, after Bron and Kerbosch, with a pivot."""
    stack: list[tuple[tuple[int, ...], set[int], set[int]]] = [((), set(range(len(near))), set())]
    while stack:
        chosen, open_, closed = stack.pop()
        if not open_ and not closed:
            yield chosen
            continue
        pivot = max(open_ | closed, key=lambda node: len(near[node] & open_))
        for node in sorted(open_ - near[pivot]):
            stack.append(((*chosen, node), open_ & near[node], closed & near[node]))
            open_ = open_ - {node}
            closed = closed | {node}
