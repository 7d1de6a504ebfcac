"""Every error a user can meet, as a small tree rooted in one class."""

from __future__ import annotations


class PeriluneError(Exception):
    """Something the user can act on: one clear sentence, where it is, and what to do.

    `where` names the place (a file and line, a flag, a field); `fix` says what to do.
    """

    def __init__(self, message: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} {self.fix}" if self.fix else text


class UnusableInput(PeriluneError):
    """Input that cannot be read or understood. The command line exits with 2."""


class Refused(PeriluneError):
    """A choice that the catalog or the engine forbids, with the nearest allowed one in `fix`."""
