"""Files that somebody else wrote, and files that are replaced whole."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from perilune.errors import UnusableInput


def read_capped(path: Path, most: int) -> bytes:
    """The bytes of a regular file; raises UnusableInput for one that is absent, not regular or over `most` bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UnusableInput("This is no regular file.", where=str(path))
            raw = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise unusable(path, error) from None
    if len(raw) > most:
        raise UnusableInput(f"The file is larger than the {most:,} bytes it may have.", where=str(path))
    return raw


def replace_file(path: Path, raw: bytes) -> None:
    """Write bytes beside a file and put them in its place; a link keeps pointing where it did.

    Permissions stay. Raises UnusableInput where writing fails; the old file is then untouched.
    """
    target = Path(os.path.realpath(path))
    temporary = None
    _refuse_target(path, target)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise unusable(path, error, "written") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _refuse_target(path: Path, target: Path) -> None:
    """Keep devices, pipes, folders, links in a circle and read-only files as they are."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if target.is_symlink():
            raise UnusableInput("The link leads nowhere.", where=str(path)) from None
        return
    except OSError as error:
        raise unusable(path, error, "written") from None
    if not stat.S_ISREG(mode):
        raise UnusableInput("This is no regular file, so it is not replaced.", where=str(path))
    if not mode & stat.S_IWUSR:
        raise UnusableInput("The file is read-only, so it is not replaced.", where=str(path))


def unusable(path: Path, error: Exception, done: str = "read") -> UnusableInput:
    """What to say of a file that the system would not have read (or written)."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return UnusableInput(f"The file cannot be {done}: {reason.lower()}.", where=str(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
