"""Plain tables and JSON lines, for one's own logs. The columns, or keys, are:

`isl`, `osl`: prompt and answer tokens (images included). Optional: `arrival_s`, seconds on any clock, in all rows or in
none; `session`, a whole number; `images`, the tokens of each image; `blocks` with `block_tokens`, ids of equal content
from the start of the prompt. In CSV a list is whole numbers with spaces between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from perilune.rehearse.request import Request
from perilune.rehearse.traces.blocks import fitting
from perilune.rehearse.traces.clock import UNTIMED
from perilune.rehearse.traces.jsonl import objects
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.table import real, table, whole

FIELDS: Final = ("arrival_s", "isl", "osl")
OPTIONAL: Final = ("arrival_s", "session", "images", "blocks", "block_tokens")


class Row(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One line of JSON, or one row of a table."""

    isl: int
    osl: int
    arrival_s: float | None = None
    session: int = -1
    images: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0


_DECODER: Final = msgspec.json.Decoder(Row)


def read_jsonl(source: Source) -> Iterator[Request]:
    """The requests of plain JSON lines, in file order."""
    return _requests(source, objects(source, _DECODER))


def read_csv(source: Source) -> Iterator[Request]:
    """The requests of a plain table, in file order."""
    return _requests(source, _rows(source))


def _rows(source: Source) -> Iterator[Row]:
    for isl, osl, arrival_s, session, images, blocks, block_tokens in table(source, FIELDS[1:], OPTIONAL):
        yield Row(
            whole(source, isl, "isl"),
            whole(source, osl, "osl"),
            real(source, arrival_s, "arrival_s") if arrival_s else None,
            whole(source, session, "session") if session else -1,
            tuple(whole(source, word, "images") for word in images.split()),
            tuple(whole(source, word, "blocks") for word in blocks.split()),
            whole(source, block_tokens, "block_tokens") if block_tokens else 0,
        )


def _requests(source: Source, rows: Iterator[Row]) -> Iterator[Request]:
    timed: bool | None = None
    for row in rows:
        if timed is None:
            timed = row.arrival_s is not None
        if timed is not (row.arrival_s is not None):
            raise source.bad("Some rows have an arrival and some have none.", field=FIELDS[0])
        if not source.usable(FIELDS, row.arrival_s or 0.0, row.isl, row.osl):
            continue
        if row.blocks and row.block_tokens < 1:
            raise source.bad("Blocks need the tokens of a block, at least 1.", field="block_tokens")
        if row.images and (min(row.images) < 1 or sum(row.images) > row.isl):
            raise source.bad("Each image has a token or more, and all lie within the prompt.", field="images")
        yield Request(
            UNTIMED if row.arrival_s is None else row.arrival_s,
            row.isl,
            row.osl,
            fitting(source, row.blocks, row.block_tokens, row.isl + row.osl),
            row.block_tokens,
            row.images,
            session=row.session,
        )
