"""One PP micro-batch on one attention-DP rank: what it decodes, and what it does in the step under way."""

from __future__ import annotations

from perilune.rehearse.live import Live
from perilune.rehearse.replica.batch import Batch
from perilune.rehearse.replica.flight import Flight
from perilune.rehearse.replica.rank import Rank


class Lane:
    """A running batch and the prefill that interrupts it. `ghosts` have ended, but ride along one step more."""

    __slots__ = ("arrived", "batch", "decodes", "flight", "ghost_kv", "ghosts", "pending", "rank", "taken")

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.batch = Batch(rank.engine.page, rank.engine.reserve)
        self.flight: Flight | None = None  # the prefill under way
        self.pending: Flight | None = None  # the prefill decided on while the step before it runs
        self.decodes = False  # whether the batch decodes in the step under way
        self.arrived: list[Live] = []  # of those that were in the pipeline, who join at the next boundary
        self.taken = 0  # KV tokens allocated for the first step under way
        self.ghosts = 0
        self.ghost_kv = 0
