"""CSV tables with a header: columns by name, and numbers that are numbers."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence

from perilune.rehearse.traces.source import Source


def table(source: Source, required: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """The named columns of each row, in the order asked for; an optional column that is absent is empty.

    Raises UnusableInput for a missing column and for a row with more or fewer fields than the header, except for a last
    row that ends too early: that is noted.
    """
    reader = csv.reader(_text(source))
    rows = _read(source, reader)
    header = [name.strip() for name in next(rows, [])]
    for name in required:
        if name not in header:
            raise source.bad(f"The table has no column {name}; it has {', '.join(header)[:200] or 'none'}.", field=name)
    for name in (*required, *optional):
        if header.count(name) > 1:
            raise source.bad(f"The table has the column {name} twice.", field=name)
    places = [header.index(name) if name in header else len(header) for name in (*required, *optional)]
    for row in rows:
        if len(row) != len(header):
            if not row:
                continue
            if source.cut and len(row) < len(header):
                source.truncated()
                return
            raise source.bad(f"The row has {len(row)} fields; the header has {len(header)}.")
        row.append("")
        yield tuple([row[place] for place in places])


def header(source: Source) -> list[str]:
    """The names of the columns; empty for an empty file."""
    return [name.strip() for name in next(_read(source, csv.reader(_text(source))), [])]


def whole(source: Source, text: str, field: str) -> int:
    """A whole number, also one written as 12.0."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    value = real(source, text, field)
    if not value.is_integer():
        raise source.bad(f"{text[:40]!r} is no whole number.", field=field)
    return int(value)


def real(source: Source, text: str, field: str) -> float:
    """A finite number."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise source.bad(f"{text[:40]!r} is no number.", field=field)
    return value


def _text(source: Source) -> Iterator[str]:
    for raw in source.lines():
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            raise source.bad("The line is not UTF-8 text.") from None


def _read(source: Source, reader: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise source.bad(f"The row cannot be read: {error}.") from None
