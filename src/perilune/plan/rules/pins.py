"""A pinned state pool: whole requests on every attention-DP rank, one slot to spare, and as many as are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.reaching import more_requests
from perilune.plan.rules.rule import Says, rule
from perilune.plan.rules.splitting import PIN, RATIO
from perilune.plan.rules.subject import Subject


@dataclass(frozen=True, slots=True)
class Pin:
    """What a pin gives each attention-DP worker: slots, whole requests of `per_request` slots, and what is left."""

    slots: int
    workers: int
    each: int
    per_request: int

    @property
    def requests(self) -> int:
        """Requests that a worker's slots hold."""
        return self.each // self.per_request

    @property
    def spare(self) -> int:
        """Slots a worker has beyond those."""
        return self.each % self.per_request

    @property
    def idle(self) -> int:
        """Slots of the whole server that no request uses, but for one to spare a worker."""
        return self.workers * max(self.spare - 1, 0) + self.slots % self.workers

    def of(self, requests: int) -> Edit:
        """The pin for so many requests a worker, with one slot to spare on each."""
        return write(PIN, self.workers * (requests * self.per_request + 1))

    def __str__(self) -> str:
        if self.workers == 1:
            return f"{self.slots} slots"
        return f"{self.slots} slots are {self.each} on each of {self.workers} attention-DP ranks"


def _pin(s: Subject) -> Pin | None:
    """The pin, where it decides how many requests run."""
    inputs, sizing = s.ledger.inputs, s.ledger.sizing
    if inputs is None or sizing is None or inputs.given_slots is None or inputs.radix_off or not inputs.hybrid:
        return None
    dp = inputs.attn_dp
    found = Pin(inputs.given_slots, dp, inputs.given_slots // dp, inputs.slots_per_request)
    return found if sizing.requests == found.requests > 0 else None


@rule("state-pin", "capacity", "sgl-project/sglang issue 37066")
def no_spare(s: Subject) -> Iterator[Says]:
    """--max-mamba-cache-size is shared by the attention-DP ranks: each wants one slot more than its requests take."""
    found = _pin(s)
    if found is None or found.spare:
        return
    yield Says(
        f"{found}, exactly {found.requests} requests of {found.per_request} slots with none to spare: "
        "a full server can stop with `Can not alloc mamba cache`.",
        flags=(PIN,),
        edits=more_requests(s) or (found.of(found.requests),),
    )


@rule("state-pin-idle", "advice")
def idle(s: Subject) -> Iterator[Says]:
    """Slots of --max-mamba-cache-size that make up no whole request on any rank never serve one."""
    found = _pin(s)
    if found is None or not found.spare or not found.idle:
        return
    more = more_requests(s)
    if more == ():
        return  # more are asked for than fit: fewer slots are no answer to that
    yield Says(
        f"{found}, {found.requests} requests of {found.per_request} slots: {found.idle} of all slots "
        "never serve a request.",
        flags=(PIN,),
        edits=more or (found.of(found.requests),),
    )


@rule("state-pin-and-ratio", "rewrite")
def pin_and_ratio(s: Subject) -> Iterator[Says]:
    """A pin makes the engine ignore the ratio."""
    sizing, ratio = s.ledger.sizing, s.value(RATIO)
    if ratio is None or not s.wrote(PIN):
        return
    slots = f" {sizing.slots} slots a worker stand." if sizing is not None and sizing.slots else ""
    yield Says(f"{PIN} is given, so {RATIO} {ratio} does nothing.{slots}", flags=(RATIO, PIN), edits=remove(RATIO))


RULES = (no_spare, idle, pin_and_ratio)
