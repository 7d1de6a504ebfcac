"""Qwen-Bailian traces: JSON lines, seconds, ids of 16-token blocks that hold across the whole file.

A follow-up names the chat before it (`parent_chat_id`); requests of one conversation share a session. Their recorded
arrivals stay: a follow-up comes when it came, not after the answer that the rehearsal gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from perilune.rehearse.request import Request
from perilune.rehearse.traces.blocks import fitting
from perilune.rehearse.traces.jsonl import objects
from perilune.rehearse.traces.source import Source

BLOCK_TOKENS: Final = 16
FIELDS: Final = ("timestamp", "input_length", "output_length")

REMEMBERED: Final = 1_000_000
"""Chats whose conversation is remembered; a follow-up to an older one begins a new session."""


class Row(msgspec.Struct, gc=False):
    """One line; `type` and `turn` are not needed."""

    chat_id: int
    timestamp: float
    input_length: int
    output_length: int
    parent_chat_id: int = -1
    hash_ids: tuple[int, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Row)


def read(source: Source) -> Iterator[Request]:
    """The requests of a Bailian file, in file order; a session is the first chat of its conversation."""
    roots: dict[int, int] = {}
    for row in objects(source, _DECODER):
        root = roots[row.chat_id] = roots.get(row.parent_chat_id, row.chat_id)
        if len(roots) > REMEMBERED:
            del roots[next(iter(roots))]
        if source.usable(FIELDS, row.timestamp, row.input_length, row.output_length):
            ids = fitting(source, row.hash_ids, BLOCK_TOKENS, row.input_length + row.output_length)
            yield Request(row.timestamp, row.input_length, row.output_length, ids, BLOCK_TOKENS, session=root)
