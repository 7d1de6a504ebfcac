"""Ids of equal content: checked where a trace has them, made where it records only how much was cached."""

from __future__ import annotations

from typing import Final

from perilune.rehearse.traces.source import Source

LOCAL_BITS: Final = 40
"""Ids that hold within one session, or one shared prefix, are below 2**40; the bits above tell whose they are."""


def fitting(source: Source, ids: tuple[int, ...], block_tokens: int, tokens: int) -> tuple[int, ...]:
    """The ids, when so many blocks can lie in the `tokens` of a prompt and its answer; else UnusableInput."""
    if (len(ids) - 1) * block_tokens >= tokens:
        raise source.bad(
            f"{len(ids)} blocks of {block_tokens} tokens are more than the {tokens} tokens of prompt and answer.",
            field="hash_ids",
        )
    return ids


class Minter:
    """Ids for the blocks of one session, unlike those of any other.

    A trace that says how much of a prompt was already cached, not what, is given ids that repeat just so much of the
    prompt before it.
    """

    __slots__ = ("_next",)

    def __init__(self, session: int) -> None:
        self._next = (session + 1) << LOCAL_BITS

    def extend(self, kept: tuple[int, ...], blocks: int) -> tuple[int, ...]:
        """`kept`, followed by new ids up to so many `blocks`."""
        fresh = max(0, blocks - len(kept))
        self._next += fresh
        return kept + tuple(range(self._next - fresh, self._next))


class Shared:
    """Ids for prefixes that sessions have in common, such as the tools and the system prompt of an agent."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}

    def ids(self, key: tuple[object, ...], blocks: int) -> tuple[int, ...]:
        """The first `blocks` ids of the prefix that `key` names; always the same for the same key."""
        base = -((self._known.setdefault(key, len(self._known)) + 1) << LOCAL_BITS)
        return tuple(range(base, base + blocks))
