"""A file as text: decoded with care, its lines counted, its bytes kept."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perilune.errors import UnusableInput
from perilune.files import read_capped

MOST_BYTES = 4 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")


class NoServer(UnusableInput):
    """The text can be read, and it starts no server."""


@dataclass(frozen=True)
class Text:
    """The text of a file without its byte order mark; line ends stand as they were written."""

    name: str
    text: str
    bom: bool = False

    @classmethod
    def decode(cls, raw: bytes, name: str) -> Text:
        """Text of a file's bytes; raises UnusableInput for what is no UTF-8 text of a reasonable size."""
        if len(raw) > MOST_BYTES:
            raise UnusableInput(f"It has more than {MOST_BYTES >> 20} MiB, more than any real manifest.", where=name)
        if raw.startswith(_OTHER_ENCODINGS):
            raise UnusableInput("It is UTF-16 text.", where=name, fix="Save it as UTF-8.")
        bom = raw.startswith(BOM)
        body = raw[len(BOM) :] if bom else raw
        if b"\0" in body:
            raise UnusableInput("It is a binary file, no text.", where=name)
        try:
            return cls(name, body.decode("utf-8"), bom)
        except UnicodeDecodeError as error:
            line = body.count(b"\n", 0, error.start) + 1
            raise UnusableInput("The text is not UTF-8.", where=f"{name}, line {line}") from None

    def encode(self) -> bytes:
        """The bytes of the file."""
        return (BOM if self.bom else b"") + self.text.encode("utf-8")

    def line(self, offset: int) -> int:
        """The line, from 1, of a character."""
        return bisect_right(self._starts, offset)

    def at(self, offset: int) -> str:
        """A character's place for an error: the file and the line."""
        return self.at_line(self.line(offset))

    def at_line(self, line: int) -> str:
        """A line for an error: the file and its number."""
        return f"{self.name}, line {line}"

    @cached_property
    def is_zsh(self) -> bool:
        """Whether it is a script for zsh, where the name of an array stands for all of it."""
        first = self.text[:200].partition("\n")[0]
        return first.startswith("#!") and "zsh" in first

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts


def read_text(path: Path) -> Text:
    """Read a regular file; raises UnusableInput naming it."""
    return Text.decode(read_capped(path, MOST_BYTES), str(path))
