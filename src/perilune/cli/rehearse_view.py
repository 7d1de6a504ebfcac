"""A rehearsal on the terminal: its lines in colour, and how far it is while it runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from types import FrameType, TracebackType

from perilune.cli import output
from perilune.rehearse.report.summary import Line

STYLES = {"head": "bold", "good": "bold green", "bad": "bold red", "dim": "dim"}


def print_lines(lines: Iterable[Line]) -> None:
    """The lines as they are; colour only on a terminal."""
    from rich.text import Text

    console = output.console()
    for line in lines:
        console.print(Text(line.text, style=STYLES.get(line.style, "")), no_wrap=True, overflow="ignore", crop=False)


class Interrupt:
    """Ctrl-C as a question that the run asks between events; a second one ends the program at once."""

    def __init__(self) -> None:
        self._came = False
        self._before: signal._HANDLER = signal.SIG_DFL

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        signal.signal(signal.SIGINT, self._before)

    def came(self) -> bool:
        """Whether it was pressed."""
        return self._came


class Progress:
    """One line of progress on standard error while a run lasts, if that is a terminal."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._shown = sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._write("")

    def update(self, completed: int) -> None:
        """So many requests are done."""
        share = f" of {self._total:,} ({completed / self._total:.0%})" if self._total else ""
        self._write(f"requests done: {completed:,}{share}; Ctrl-C ends with what there is")

    def _write(self, text: str) -> None:
        if not self._shown:
            return
        sys.stderr.write(f"\r{text:<{self._width}}\r")
        sys.stderr.flush()
        self._width = len(text)
