"""Azure LLM inference traces, 2023 and 2024: CSV with the instant, the prompt's tokens and the answer's.

2023 writes `2023-11-16 18:17:03.9799600`, 2024 `2024-05-10 00:00:00.009930+00:00`, on full seconds without a fraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from perilune.plan.display import counted
from perilune.rehearse.request import Request
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.table import table, whole

FIELDS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES: Final = "NumImages"


def read(source: Source) -> Iterator[Request]:
    """The requests of an Azure file, in file order; arrivals are seconds since 1970."""
    illustrated = 0
    for stamp, context, generated, images in table(source, FIELDS, (IMAGES,)):
        arrival_s = instant(source, stamp, FIELDS[0])
        isl, osl = whole(source, context, FIELDS[1]), whole(source, generated, FIELDS[2])
        illustrated += bool(images) and whole(source, images, IMAGES) > 0
        if source.usable(FIELDS, arrival_s, isl, osl):
            yield Request(arrival_s, isl, osl)
    if illustrated:
        source.notes.append(f"{counted(illustrated, 'request')} with images of unknown size, counted as text")


def instant(source: Source, text: str, field: str) -> float:
    """An ISO 8601 instant as seconds since 1970, to the microsecond; UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise source.bad(f"{text[:40]!r} is no date and time.", field=field) from None
