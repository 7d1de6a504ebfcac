"""Converting many pages: each is read, converted and judged on its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from perilune.cookbook.files import read_page
from perilune.cookbook.page import Page
from perilune.cookbook.tables.convert import Note, Target, convert
from perilune.errors import UnusableInput


@dataclass(frozen=True)
class Outcome:
    """What became of one file; `unusable` says that it could not be read as a page, or not be written."""

    path: Path
    status: Literal["converted", "unchanged", "refused"]
    before: Page | None = None
    after: Page | None = None
    tables: int = 0
    cells: int = 0
    refusals: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()
    unusable: bool = False

    def without_pages(self) -> Outcome:
        """The outcome alone, so that a long run does not keep every page."""
        return replace(self, before=None, after=None)

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data, in the order of the contract."""
        first = self.refusals[0] if self.refusals else None
        return {
            "path": str(self.path),
            "status": self.status,
            "tables": self.tables,
            "cells": self.cells,
            "reason": first.message if first else None,
            "line": first.line or None if first else None,
            "refusals": [{"line": note.line or None, "reason": note.message} for note in self.refusals],
            "notes": [{"line": note.line, "message": note.message} for note in self.notes],
        }

    def diff(self) -> str:
        """The change as a unified diff, with the file's own line ends."""
        if self.before is None or self.after is None or self.status != "converted":
            return ""
        name = self.path.as_posix()
        lines = difflib.unified_diff(self.before.lines, self.after.lines, f"a/{name}", f"b/{name}")
        return "".join(
            line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


def convert_files(paths: Sequence[Path], target: Target) -> Iterator[Outcome]:
    """Yield the outcome of each file; a file that cannot be read is refused and the others go on."""
    for path in paths:
        try:
            page = read_page(path)
        except UnusableInput as error:
            yield failed(path, error)
            continue
        done = convert(page, target)
        yield Outcome(path, done.status, page, done.page, done.tables, done.cells, done.refusals, done.notes)


def failed(path: Path, error: UnusableInput) -> Outcome:
    """The outcome of a file that could not be read or written."""
    return Outcome(path, "refused", refusals=(Note(0, error.message),), unusable=True)
