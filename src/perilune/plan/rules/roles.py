"""One role of a PD pair by itself: what its pools hold besides the requests they were sized for."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.memory.pools import GIB
from perilune.plan.rules.edits import remove, write
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

EXTRA, RADIX = "--disaggregation-decode-extra-slots", "--disaggregation-decode-enable-radix-cache"
PAGES_EXTRA = 16  # extra slots of the page's recipes


@rule("pd-extra-slots", "capacity", f"{ENGINE}, pool allocation")
def extra_slots(s: Subject) -> Iterator[Says]:
    """A PD decode server builds slots for requests in transfer that its sizing does not count."""
    found, sizing = s.ledger, s.ledger.sizing
    if s.role != "decode" or sizing is None or sizing.slots is None or not found.stages or s.wrote(EXTRA):
        return
    built = max((stage.allocated.slots for stage in found.stages if stage.allocated), default=0)
    more = built - sizing.slots
    if more <= 0:
        return
    bytes_ = more * (found.inputs.per_slot if found.inputs else 0)
    fewer = min(PAGES_EXTRA, int(s["disaggregation_decode_extra_slots"] or PAGES_EXTRA) // 2)
    yield Says(
        f"Besides the {sizing.slots} state slots it is sized for, the server builds {more} for requests in transfer: "
        f"{bytes_ / GIB:.1f} GiB a GPU that no budget counts.",
        flags=(EXTRA,),
        edits=(write(EXTRA, fewer),),
    )


@rule("pd-no-extra-slots", "advice", f"{PAGE}; {ENGINE}")
def no_extra_slots(s: Subject) -> Iterator[Says]:
    """A PD decode server of more than 32 requests a worker keeps no slots for requests in transfer unless told to."""
    if not s.ledger.boots or s.role != "decode" or s.wrote(EXTRA) or s.template:
        return
    edits = (write(EXTRA, PAGES_EXTRA),)
    if s["disaggregation_decode_extra_slots"] or not s.again(edits).boots:
        return
    yield Says(
        "No slot is kept for a request in transfer: while all that may run do, the next one waits on prefill until "
        "one of them ends.",
        flags=(EXTRA,),
        edits=edits,
    )


@rule("pd-decode-radix-cost", "advice", PAGE)
def decode_radix_cost(s: Subject) -> Iterator[Says]:
    """A prefix cache on a PD decode server costs the slots per request of a unified server."""
    inputs = s.ledger.inputs
    if not s.accepted or not s.wrote(RADIX) or inputs is None or not inputs.hybrid or inputs.slots_per_request < 2:
        return
    lean = s.again(remove(RADIX))
    gains = lean.boots and (lean.admitted or 0) > (s.ledger.admitted or 0)
    much = f": {s.ledger.admitted} requests run at once, {lean.admitted} without it" if gains else ""
    yield Says(
        f"With a prefix cache on decode a request holds {inputs.slots_per_request} state slots, not 1{much}.",
        flags=(RADIX,),
        edits=remove(RADIX) if lean.boots else (),
        fix="" if lean.boots else f"Leave {RADIX} out unless many requests share prefixes.",
    )


RULES = (extra_slots, no_extra_slots, decode_radix_cost)
