"""One request on its way through a replica."""

from __future__ import annotations

from perilune.rehearse.radix import Claim, Key
from perilune.rehearse.request import Request


class Live:
    """A request that has arrived and not ended. Instants are ticks, -1 before they happen.

    `out` counts the tokens it has when it (re)joins a decode batch; until then those of its earlier lives.
    """

    __slots__ = (
        "arrival",
        "cached",
        "claim",
        "done",
        "finish_step",
        "first",
        "held",
        "index",
        "isl",
        "join_step",
        "last",
        "osl",
        "out",
        "phase",
        "rate",
        "request",
        "start",
        "where",
    )

    def __init__(self, request: Request, index: int, arrival: int) -> None:
        self.request = request
        self.index = index
        self.arrival = arrival
        self.isl = request.isl
        self.osl = request.osl
        self.claim = Claim(Key(request.blocks, request.block_tokens))
        self.out = 0
        self.first = -1  # when the first token came
        self.last = -1  # when the token came with which it last joined a batch, or was retracted
        self.cached = 0  # prompt tokens found in the cache when it was first admitted
        self.done = 0  # tokens of prompt (and earlier output) whose KV is there, while prefilling
        self.start = 0  # where its newest prefill chunk began
        self.held = 0  # KV tokens allocated to it, what the tree owns included
        self.rate = 0  # thousandths of a token a decode step, 0 until drawn
        self.phase = 0  # its first page boundary, in the batch's own count of thousandths of a token
        self.join_step = 0
        self.finish_step = 0
        self.where = -1  # the replica that has it

    @property
    def length(self) -> int:
        """Tokens to prefill: the prompt and, after a retraction, what it had generated."""
        return self.isl + self.out

    def lose(self) -> None:
        """Everything it had is lost with its server: it starts over."""
        self.claim = Claim(self.claim.key)
        self.out = self.done = self.held = self.rate = 0
        self.first = self.last = self.where = -1
