"""The files of a rehearsal: report, plots, trace, records, each put in place whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perilune.cli import output
from perilune.errors import UnusableInput
from perilune.files import replace_file, unusable

if TYPE_CHECKING:
    from perilune.rehearse.report import Rehearsal


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where to write what; None where it was not asked for."""

    html: Path | None
    plots: Path | None
    trace: Path | None
    records: Path | None

    def refuse_unwritable(self) -> None:
        """Before a long run: every folder is there, `plots` is made. Raises UnusableInput."""
        files = [path for path in (self.html, self.trace, self.records) if path is not None]
        if len({path.resolve() for path in files}) < len(files):
            raise UnusableInput("Two outputs have the same path.", where=str(files[0]), fix="Give each its own.")
        for path in files:
            if not path.parent.is_dir():
                raise UnusableInput("Its folder does not exist.", where=str(path), fix=f"mkdir -p {path.parent}")
        if self.plots is not None:
            try:
                self.plots.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unusable(self.plots, error, "made") from None

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
