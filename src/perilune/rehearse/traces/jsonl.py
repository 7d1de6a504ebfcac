"""JSON lines: one object a line, decoded straight into a struct."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from perilune.rehearse.traces.source import LINE_BYTES, Source

T = TypeVar("T")


def objects(source: Source, decoder: msgspec.json.Decoder[T], most: int = LINE_BYTES) -> Iterator[T]:
    """The objects of a file, one a line; blank lines are skipped.

    Raises UnusableInput for a line that is no such object, except for a last line that ends too early: that is noted.
    """
    decode = decoder.decode
    for raw in source.lines(most):
        try:
            yield decode(raw)
        except msgspec.ValidationError as error:
            raise source.bad(f"The row does not fit the format: {spoken(error)}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not raw.strip():
                continue
            if source.cut:
                source.truncated()
                return
            raise source.bad(f"The line is no JSON object: {spoken(error)}.") from None
        except RecursionError:
            raise source.bad("The line is nested too deeply.") from None


def spoken(error: Exception) -> str:
    """The decoder's reason, begun in lower case."""
    text = str(error).rstrip(".")
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]
