"""What a request's tokens are, told by block ids instead of token ids."""

from __future__ import annotations

from itertools import compress, count
from operator import ne
from typing import TypeAlias


class Key:
    """The tokens of one request, prompt and answer. One a request: make it once and keep it.

    `blocks` are ids of equal content, `block_tokens` tokens each, from the start of the prompt. A block's id stands
    for all of its tokens, also where the prompt ends inside it; what follows the last block is like nothing else,
    so that a request without ids shares no prefix and costs one node however long it is.
    """

    __slots__ = ("block_tokens", "blocks")

    def __init__(self, blocks: tuple[int, ...] = (), block_tokens: int = 0) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens

    def page_at(self, start: int, page: int) -> Page:
        """What tells the page at token `start` from others in the same place."""
        size, blocks = self.block_tokens, self.blocks
        if not size:
            return self
        first = start // size
        if page <= size and not size % page:  # the page lies within one block
            return blocks[first] if first < len(blocks) else self
        last = -(-(start + page) // size)
        content = blocks[first:last]
        return content if len(content) == last - first else (*content, self)

    def agreement(self, other: Key, start: int, end: int) -> int:
        """Up to which token of [start, end) both are the same, given that they are before `start`."""
        if other is self:
            return end
        size = self.block_tokens
        first, last = start // size, -(-end // size)
        mine, theirs = self.blocks[first:last], other.blocks[first:last]
        if mine == theirs:
            same = len(mine)
            if same == last - first:
                return end
        else:
            same = next(compress(count(), map(ne, mine, theirs)), min(len(mine), len(theirs)))
        return min((first + same) * size, end)


Page: TypeAlias = "int | Key | tuple[int | Key, ...]"
"""The content of one page: a block's id, several, or the key itself where only this request has it."""
