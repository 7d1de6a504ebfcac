"""What a request's tokens are, told by block ids instead of token ids."""

from __future__ import annotations


class Key:
    """The tokens of one request, prompt and answer. One a request: make it once and keep it.

    `blocks` are ids of equal content, `block_tokens` tokens each, from the start of the prompt. A block's id stands for
    all of its tokens, also where the prompt ends inside it; what follows the last block is like nothing else, so
    that a request without ids shares no prefix and costs one node however long it is.
    """

    __slots__ = ("block_tokens", "blocks")

    def __init__(self, blocks: tuple[int, ...] = (), block_tokens: int = 0) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens
