"""How much of a trace a cache without limits would have served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perilune.rehearse.request import Request
from perilune.rehearse.traces.turns import turns


@dataclass(frozen=True, slots=True)
class Reuse:
    """Prompt tokens and blocks of a trace, and those of them that were seen before."""

    requests: int
    prompt_tokens: int
    hit_tokens: int
    blocks: int
    hit_blocks: int

    @property
    def token_share(self) -> float:
        """Of the prompt tokens, 0 to 1."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def block_share(self) -> float:
        """Of the blocks, 0 to 1."""
        return self.hit_blocks / self.blocks if self.blocks else 0.0


def reuse(requests: Iterable[Request]) -> Reuse:
    """Prefix reuse with an unlimited cache, in the order given, later turns right after the turn before them.

    Block by block from the start of a prompt until the first whose id was not seen in an earlier request; the last
    block may be partial, so hits are capped at the prompt. Every id of a request counts as seen after it.
    """
    seen: set[int] = set()
    count = prompt_tokens = hit_tokens = blocks = hit_blocks = 0
    for head in requests:
        for request in turns(head):
            count += 1
            prompt_tokens += request.isl
            ids, size = request.blocks, request.block_tokens
            if not ids:
                continue
            inside = min(len(ids), -(-request.isl // size))
            hits = 0
            while hits < inside and ids[hits] in seen:
                hits += 1
            seen.update(ids)
            blocks += inside
            hit_blocks += hits
            hit_tokens += min(hits * size, request.isl)
    return Reuse(count, prompt_tokens, hit_tokens, blocks, hit_blocks)
