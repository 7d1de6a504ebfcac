"""BurstGPT 1 to 3: CSV in seconds. Requests without an answer failed; the first release has no session ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from perilune.rehearse.request import Request
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.table import real, table, whole

FIELDS: Final = ("Timestamp", "Request tokens", "Response tokens")
SESSION: Final = "Session ID"


def read(source: Source) -> Iterator[Request]:
    """The requests of a BurstGPT file, in file order. Conversations share a session, API calls have none."""
    for stamp, asked, answered, session in table(source, FIELDS, (SESSION,)):
        arrival_s = real(source, stamp, FIELDS[0])
        isl, osl = whole(source, asked, FIELDS[1]), whole(source, answered, FIELDS[2])
        if source.usable(FIELDS, arrival_s, isl, osl):
            yield Request(arrival_s, isl, osl, session=_number(session) if session.strip() else -1)


def _number(session: str) -> int:
    """The same number for the same session id, without remembering ids."""
    return int.from_bytes(hashlib.blake2b(session.encode(), digest_size=7).digest())
