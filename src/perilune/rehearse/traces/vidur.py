"""Vidur's processed traces: CSV of prompt and answer lengths, without any clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perilune.rehearse.request import Request
from perilune.rehearse.traces.clock import UNTIMED
from perilune.rehearse.traces.source import Source
from perilune.rehearse.traces.table import table, whole

FIELDS: Final = ("", "num_prefill_tokens", "num_decode_tokens")


def read(source: Source) -> Iterator[Request]:
    """The requests of a Vidur file, in file order."""
    for prefill, decode in table(source, FIELDS[1:]):
        isl, osl = whole(source, prefill, FIELDS[1]), whole(source, decode, FIELDS[2])
        if source.usable(FIELDS, 0.0, isl, osl):
            yield Request(UNTIMED, isl, osl)
