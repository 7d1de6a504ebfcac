"""A documentation page as text that can be changed without touching a byte outside the change."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property

from perilune.errors import PeriluneError, UnusableInput

MAX_PAGE_BYTES = 4 * 1024 * 1024
BOM = "\ufeff"

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_FENCE = re.compile(r"---[ \t]*\Z")


class PageError(PeriluneError):
    """Something on a page that cannot be read or carried over, with its line (counted from 1)."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Dialect(enum.Enum):
    """Which Markdown a page is written in."""

    MDX = "mdx"
    MARKDOWN = "markdown"

    @classmethod
    def of(cls, name: str) -> Dialect:
        """Return the dialect of a file name: `.md` and `.markdown` are plain Markdown, all else is MDX."""
        return cls.MARKDOWN if name.lower().endswith((".md", ".markdown")) else cls.MDX


@dataclass(frozen=True)
class Edit:
    """Replace the lines from `start` up to and without `end` (counted from 0) by `lines`, ends included."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A page's text, exactly as stored: line ends kept, a byte order mark kept apart."""

    text: str
    dialect: Dialect = Dialect.MDX
    bom: bool = False

    @classmethod
    def decode(cls, raw: bytes, dialect: Dialect, name: str) -> Page:
        """Read a page's bytes; raises UnusableInput for a file that is too large, binary or not UTF-8."""
        if len(raw) > MAX_PAGE_BYTES:
            raise UnusableInput(f"the file has {len(raw):,} bytes and a page may have {MAX_PAGE_BYTES:,}.", where=name)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise UnusableInput(
                f"byte {error.start} is not UTF-8 text.", where=f"{name}:{line}", fix="Save the page as UTF-8."
            ) from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise UnusableInput("the file holds a NUL byte, so it is not text.", where=f"{name}:{line}")
        bom = text.startswith(BOM)
        return cls(text[1:] if bom else text, dialect, bom)

    def encode(self) -> bytes:
        """Return the page's bytes."""
        return ((BOM if self.bom else "") + self.text).encode("utf-8")

    @cached_property
    def lines(self) -> list[str]:
        """The lines with their ends; `\\r\\n`, `\\n` and `\\r` end a line, as in Markdown."""
        return _LINE.findall(self.text)

    @cached_property
    def frontmatter(self) -> tuple[int, int] | None:
        """The lines between the two `---` fences at the top, as (first, end) counted from 0."""
        if not self._starts_with_fence:
            return None
        for number, line in enumerate(self.lines[1:], start=1):
            if _FENCE.match(line.rstrip("\r\n")):
                return 1, number
        return None

    @property
    def frontmatter_is_open(self) -> bool:
        """Whether the first line opens a frontmatter that no line closes."""
        return self._starts_with_fence and self.frontmatter is None

    @property
    def _starts_with_fence(self) -> bool:
        return bool(self.lines) and _FENCE.match(self.lines[0].rstrip("\r\n")) is not None

    @cached_property
    def source(self) -> str:
        """What the Markdown parser reads: line ends as `\\n`, the frontmatter blanked, columns unchanged."""
        bare = [line.rstrip("\r\n") for line in self.lines]
        if self.frontmatter is not None:
            for number in range(self.frontmatter[1] + 1):
                bare[number] = ""
        return "\n".join(bare)

    def apply(self, edits: list[Edit]) -> Page:
        """Return the page with `edits` made; they must not overlap."""
        lines = list(self.lines)
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            lines[edit.start : edit.end] = edit.lines
        return Page("".join(lines), self.dialect, self.bom)


def line_end(line: str) -> str:
    """Return how a line ends: `\\r\\n`, `\\n`, `\\r` or nothing at the end of a page."""
    return line[len(line.rstrip("\r\n")) :]
