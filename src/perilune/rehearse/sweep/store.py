"""Finished points on disk: one JSON line each, appended whole, found again by a digest of all that went in."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

import perilune
from perilune.errors import UnusableInput
from perilune.facts.hardware import platforms
from perilune.files import read_capped, replace_file, unusable
from perilune.rehearse.sweep.grid import Point
from perilune.rehearse.sweep.rehearsed import Result
from perilune.rehearse.timing.profile import default_path

STORE_BYTES: Final = 512 * 2**20
READ: Final = 2**20


class Line(msgspec.Struct):
    """One finished point."""

    key: str
    point: dict[str, Any]
    result: dict[str, Any]


_DECODER: Final = msgspec.json.Decoder(Line)


def keys_of(points: Sequence[Point]) -> list[str]:
    """What each point is known by: its inputs, the files it reads, and perilune's own code and data."""
    return [
        hashlib.sha256(
            msgspec.json.encode([_program(), plain(point), *(_content(path) for path in _read_by(point))])
        ).hexdigest()
        for point in points
    ]


def plain(value: Any) -> Any:
    """A point as JSON data, what was left at its default left out."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: plain(each) for name, each in held.items() if each not in (None, (), {})}
    if isinstance(value, Path):
        return str(value)
    return value


class Store:
    """The file of a sweep, locked while it is open. Lines of other grids are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
        except (OSError, ValueError) as error:
            raise unusable(path, error, "opened") from None
        try:
            self._lines = self._read()
        except BaseException:
            os.close(self._handle)
            raise

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

    def get(self, key: str) -> Result | None:
        """The result kept under a key."""
        line = self._lines.get(key)
        return None if line is None else line.result

    def add(self, key: str, point: Point, result: Result) -> None:
        """Append a point in one write, and wait until the disk has it."""
        line = Line(key, plain(point), result)
        self._lines[key] = line
        try:
            os.write(self._handle, msgspec.json.encode(line) + b"\n")
            os.fsync(self._handle)
        except OSError as error:
            raise unusable(self._path, error, "written") from None

    def put_in_order(self, keys: Iterable[str]) -> None:
        """Write the file anew: points of other grids as they came, then those of `keys` in order."""
        ordered = dict.fromkeys(keys)
        others = [line for key, line in self._lines.items() if key not in ordered]
        now = [self._lines[key] for key in ordered if key in self._lines]
        raw = b"".join(msgspec.json.encode(line) + b"\n" for line in (*others, *now))
        if raw != read_capped(self._path, STORE_BYTES):
            replace_file(self._path, raw)

    def _read(self) -> dict[str, Line]:
        if not stat.S_ISREG(os.fstat(self._handle).st_mode):
            raise UnusableInput("This is no regular file.", where=str(self._path))
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnusableInput("Another sweep is writing to the file.", where=str(self._path)) from None
        raw = read_capped(self._path, STORE_BYTES)
        whole = raw.rfind(b"\n") + 1
        lines: dict[str, Line] = {}
        for number, text in enumerate(raw[:whole].splitlines(), 1):
            try:
                line = _DECODER.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise UnusableInput(
                    "The line is no point of a sweep.", where=f"{self._path}:{number}", fix="Choose another file."
                ) from None
            lines[line.key] = line
        if whole < len(raw):
            if not raw[whole:].startswith(b'{"key":'):
                raise UnusableInput("The file is no sweep's.", where=str(self._path), fix="Choose another file.")
            os.ftruncate(self._handle, whole)  # a point that was being written when the power went
        return lines


def _read_by(point: Point) -> list[Path]:
    read = (point.plan_file, point.load.trace, point.profile)
    return [*(path for path in read if path is not None), *(() if point.profile else _own_profiles())]


@cache
def _own_profiles() -> tuple[Path, ...]:
    """The profiles that `perilune calibrate` left in their default places: any may be used."""
    return tuple(path for path in map(default_path, sorted(platforms())) if path.exists())


@cache
def _content(path: Path) -> str:
    """A digest of a file, or of the files of a folder."""
    digest = hashlib.sha256()
    try:
        for each in sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]:
            if not stat.S_ISREG(each.stat().st_mode):
                raise UnusableInput("This is no regular file.", where=str(each))
            digest.update(each.name.encode("utf-8", "surrogateescape"))
            with each.open("rb") as file:
                while raw := file.read(READ):
                    digest.update(raw)
    except (OSError, ValueError) as error:
        raise unusable(path, error) from None
    return digest.hexdigest()


@cache
def _program() -> str:
    """A digest of the code and data that a rehearsal comes from."""
    home = Path(perilune.__file__).parent
    digest = hashlib.sha256()
    for part in ("errors.py", "files.py", "facts", "plan", "rehearse"):
        place = home / part
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(home)).encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
