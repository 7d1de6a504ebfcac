"""The files of a rehearsal: report, plots, trace, records, each put in place whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perilune.cli import output
from perilune.errors import UnusableInput
from perilune.files import replace_file, unusable

if TYPE_CHECKING:
    from perilune.rehearse.report import Rehearsal


def refuse_unwritable(files: Sequence[Path], folder: Path | None, inputs: Iterable[Path | None]) -> None:
    """Before a long run: make `folder`; raise UnusableInput for files that could not be put in place, or are read."""
    taken = {path.resolve() for path in inputs if path is not None}
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(folder, error, "made") from None
    for path in files:
        place = path.resolve()
        if place in taken:
            raise UnusableInput("It is read, or written twice.", where=str(path), fix="Give each output its own path.")
        taken.add(place)
        if not place.parent.is_dir():
            raise UnusableInput("Its folder does not exist.", where=str(path), fix=f"mkdir -p {path.parent}")
        if place.exists() and not place.is_file():
            raise UnusableInput("This is no regular file, so it is not replaced.", where=str(path))
        if not os.access(place.parent, os.W_OK | os.X_OK):
            raise UnusableInput("Its folder is read-only.", where=str(path), fix="Choose another.")


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where to write what; None where it was not asked for."""

    html: Path | None
    plots: Path | None
    trace: Path | None
    records: Path | None

    def refuse_unwritable(self, inputs: Iterable[Path | None]) -> None:
        """Before a long run, as the function of this name does."""
        files = [path for path in (self.html, self.trace, self.records) if path is not None]
        if self.plots is not None:
            from perilune.rehearse.report.plots import DRAWERS

            files += [self.plots / name for name in DRAWERS]
        refuse_unwritable(files, self.plots, inputs)

    def write(self, run: Rehearsal) -> None:
        """Write what was asked for, and name it on standard error."""
        for path, raw in self._made(run):
            replace_file(path, raw)
            output.note(f"Wrote {path}.")

    def _made(self, run: Rehearsal) -> list[tuple[Path, bytes]]:
        made: list[tuple[Path, bytes]] = []
        if self.html is not None:
            from perilune.rehearse.report.html_report import html_report

            made.append((self.html, html_report(run)))
        if self.trace is not None:
            from perilune.rehearse.report.perfetto import chrome_trace

            made.append((self.trace, chrome_trace(run)))
        if self.records is not None:
            from perilune.rehearse.report.document import records

            made.append((self.records, records(run)))
        if self.plots is not None:
            from perilune.rehearse.report.plots import plots

            made += [(self.plots / name, raw) for name, raw in plots(run).items()]
        return made
