"""Pages on disk: which files a path names, reading them with care, and replacing them whole."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from perilune.cookbook.page import MAX_PAGE_BYTES, Dialect, Page
from perilune.errors import UnusableInput

PAGE_SUFFIX = ".mdx"
SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__"))


def find_pages(paths: Sequence[Path]) -> list[Path]:
    """Return the files named, and every `.mdx` file below the folders named, each once, in order.

    Links to folders, hidden folders and `node_modules` are not entered. Raises UnusableInput for a path
    that does not exist and for a folder without pages.
    """
    found: dict[Path, None] = {}
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise _unusable(path, error) from None
        pages = list(_pages_below(path)) if stat.S_ISDIR(mode) else [path]
        if not pages:
            raise UnusableInput(f"the folder holds no {PAGE_SUFFIX} page.", where=str(path))
        found.update(dict.fromkeys(pages))
    return list(found)


def _pages_below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise _unusable(Path(error.filename or folder), error)

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.lower().endswith(PAGE_SUFFIX) and not name.startswith("."):
                yield Path(parent, name)


def read_page(path: Path) -> Page:
    """Read a page; raises UnusableInput for what is no readable text file of reasonable size."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UnusableInput("this is no regular file.", where=str(path))
            raw = file.read(MAX_PAGE_BYTES + 1)
            size = max(len(raw), os.fstat(handle).st_size)
    except OSError as error:
        raise _unusable(path, error) from None
    if size > MAX_PAGE_BYTES:
        raise UnusableInput(f"the file has {size:,} bytes, and a page may have {MAX_PAGE_BYTES:,}.", where=str(path))
    return Page.decode(raw, Dialect.of(path.name), str(path))


def write_page(path: Path, page: Page) -> None:
    """Replace a file by a page in one step, keeping its permissions; a link keeps pointing where it did."""
    replace_file(path, page.encode())


def replace_file(path: Path, raw: bytes) -> None:
    """Write bytes beside a file and put them in its place; raises UnusableInput where that fails."""
    target = Path(os.path.realpath(path))
    temporary = None
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
        raise _unusable(path, error, "written") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unusable(path: Path, error: OSError, done: str = "read") -> UnusableInput:
    reason = (error.strerror or type(error).__name__).lower()
    return UnusableInput(f"cannot be {done}: {reason}.", where=str(path))
