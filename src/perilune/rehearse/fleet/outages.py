"""Servers that fail during a rehearsal, and come back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from perilune.errors import UnusableInput
from perilune.rehearse.request import LATEST_S

Lost = Literal["resubmit", "router", "fail"]
"""What becomes of the requests of a lost server.

`resubmit`: all start over on another server. `router`: what the SGLang router does, which sends a request again only
while nothing has come back from it; an answer that has begun breaks off. `fail`: all are lost.
"""
LOST: Final[tuple[str, ...]] = get_args(Lost)

WRITTEN: Final = re.compile(r"(?P<replica>[a-z]+-\d{1,6})@(?P<at>[0-9.]{1,16})\+(?P<down>[0-9.]{1,16})")
WHERE: Final = "--fail"


@dataclass(frozen=True, slots=True)
class Outage:
    """A server, by its name in the report, fails at `at_s` and serves again `down_s` later, its boot included."""

    replica: str
    at_s: float
    down_s: float


def parse_outage(text: str) -> Outage:
    """An outage as it is written: `decode-0@120+1800` fails after 120 s, for 1800 s.

    Raises UnusableInput for anything else.
    """
    found = WRITTEN.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        outage = Outage(found["replica"], float(found["at"]), float(found["down"]))
    except ValueError:
        raise UnusableInput(
            f"{text[:80]!r} is not an outage.",
            where=WHERE,
            fix="Write REPLICA@START+SECONDS, such as decode-0@120+1800.",
        ) from None
    if outage.at_s + outage.down_s > LATEST_S:
        raise UnusableInput(f"A rehearsal is at most {LATEST_S:,.0f} s long, and {text} lasts longer.", where=WHERE)
    return outage


def check_outages(outages: Sequence[Outage], replicas: Sequence[str]) -> tuple[Outage, ...]:
    """The outages in order of time.

    Raises UnusableInput for a server that the fleet does not have, and for one that fails while it is down.
    """
    ordered = sorted(outages, key=lambda outage: (outage.at_s, outage.replica))
    back: dict[str, float] = {}
    for outage in ordered:
        if outage.replica not in replicas:
            known = ", ".join(replicas[:8]) + (" ..." if len(replicas) > 8 else "")
            raise UnusableInput(f"The fleet has no {outage.replica}.", where=WHERE, fix=f"It has {known}.")
        if outage.at_s < back.get(outage.replica, 0.0):
            raise UnusableInput(
                f"{outage.replica} fails at {outage.at_s:g} s while it is still down.",
                where=WHERE,
                fix="Give outages of one server that do not overlap.",
            )
        back[outage.replica] = outage.at_s + outage.down_s
    return tuple(ordered)
