"""A trace file read line by line: what is wrong with a line is said with its file, line and field."""

from __future__ import annotations

import gzip
import io
import math
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from perilune.errors import UnusableInput
from perilune.files import unusable

LINE_BYTES: Final = 16 * 2**20
"""The longest line of a trace: a prompt of a million tokens in 16-token blocks takes about half a megabyte."""

DOCUMENT_BYTES: Final = 256 * 2**20
"""The longest session of a format that keeps a whole session in one document."""

EXPANSION: Final = 200
"""How many times its packed size a gzip file may grow, beyond `EXPANSION_FREE` bytes. Traces grow 4 to 15 times."""

EXPANSION_FREE: Final = 8 * 2**20

EMPTY_LINES: Final = 1_000_000
"""Lines without a word that may follow each other: reading more of them would only take time."""

EMPTY_LINE: Final = 2  # bytes: its end

MOST_TOKENS: Final = 10**8
MOST_SECONDS: Final = 10.0**10

_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")


class Source:
    """A trace file, the line that is being read, and what is to be told about the data afterwards."""

    __slots__ = ("cut", "empty", "line", "notes", "path")

    def __init__(self, path: Path, notes: list[str] | None = None) -> None:
        self.path = path
        self.notes: list[str] = [] if notes is None else notes
        self.line = 0
        self.empty = 0  # rows left out because there is nothing to serve
        self.cut = False  # the line being read has no end: it may be truncated

    def bad(self, message: str, *, field: str | None = None, fix: str | None = None) -> UnusableInput:
        """The error for the line being read."""
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return UnusableInput(message, where=f"{place}: {field}" if field else place, fix=fix)

    def lines(self, most: int = LINE_BYTES) -> Iterator[bytes]:
        """The lines with their ends, unpacked, of at most `most` bytes; a byte order mark is taken off."""
        with _opened(self.path) as (file, packed):
            allowed = packed * EXPANSION + EXPANSION_FREE if packed else math.inf
            taken = empty = 0
            while raw := self._line(file, most + 1):
                self.line += 1
                taken += len(raw)
                if len(raw) > most:
                    raise self.bad(f"The line is longer than the {most:,} bytes it may have.")
                if taken > allowed:
                    raise self.bad(f"The file unpacks to more than {EXPANSION} times its size.")
                empty = empty + 1 if len(raw) <= EMPTY_LINE and raw.isspace() else 0
                if empty > EMPTY_LINES:
                    raise self.bad(f"More than {EMPTY_LINES:,} lines in a row are empty.")
                self.cut = not raw.endswith(b"\n")
                yield self._first(raw) if self.line == 1 else raw
        self.line = 0

    def usable(self, fields: tuple[str, str, str], arrival_s: float, isl: int, osl: int) -> bool:
        """Whether a row can be served; one with an empty prompt or answer is counted and left out.

        `fields` names arrival, ISL and OSL as the format does. Raises UnusableInput for absurd values.
        """
        if not 0 <= arrival_s <= MOST_SECONDS:
            raise self.bad(f"The time must be 0 to {MOST_SECONDS:.0e} seconds, not {arrival_s:g}.", field=fields[0])
        if 0 < isl <= MOST_TOKENS and 0 < osl <= MOST_TOKENS:
            return True
        for field, tokens in zip(fields[1:], (isl, osl), strict=True):
            if not 0 <= tokens <= MOST_TOKENS:
                shown = tokens if abs(tokens) < 10**20 else "a number of over 20 digits"
                raise self.bad(f"The tokens must be 0 to {MOST_TOKENS:,}, not {shown}.", field=field)
        self.empty += 1
        return False

    def truncated(self) -> None:
        """Note that the last line was left out because the file ends within it."""
        self.notes.append(f"line {self.line} was left out: the file ends within it")

    def finish(self) -> None:
        """Note what was left out, once the file is read."""
        if self.empty:
            rows = "row" if self.empty == 1 else "rows"
            self.notes.append(f"{self.empty:,} {rows} left out: an empty prompt or answer (failed requests)")
            self.empty = 0

    def _line(self, file: io.BufferedIOBase, most: int) -> bytes:
        try:
            return file.readline(most)
        except (OSError, EOFError, zlib.error) as error:
            raise unusable(self.path, error) from None

    def _first(self, raw: bytes) -> bytes:
        if raw.startswith(_WIDE):
            raise self.bad("The file is UTF-16 text; a trace is UTF-8.")
        if b"\0" in raw:
            raise self.bad("The file is binary, not a trace.")
        return raw.removeprefix(_BOM)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedIOBase, int]]:
    """A regular file for reading, unpacked when it is gzip, and its packed size (0 when it is not).

    A pipe or a device is refused rather than waited for.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise unusable(path, error) from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise UnusableInput("This is no regular file.", where=str(path))
    with os.fdopen(handle, "rb") as file:
        try:
            packed = file.peek(2)[:2] == _GZIP
        except OSError as error:
            raise unusable(path, error) from None
        if not packed:
            yield file, 0
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked, status.st_size
