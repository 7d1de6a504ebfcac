"""Pages on disk: which files a path names, reading them with care, and replacing them whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from perilune.cookbook.page import MAX_PAGE_BYTES, Dialect, Page
from perilune.errors import UnusableInput
from perilune.files import read_capped, replace_file, unusable

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
            raise unusable(path, error) from None
        pages = list(_pages_below(path)) if stat.S_ISDIR(mode) else [path]
        if not pages:
            raise UnusableInput(f"the folder holds no {PAGE_SUFFIX} page.", where=str(path))
        found.update(dict.fromkeys(pages))
    return list(found)


def _pages_below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise unusable(Path(error.filename or folder), error)

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.lower().endswith(PAGE_SUFFIX) and not name.startswith("."):
                yield Path(parent, name)


def read_page(path: Path) -> Page:
    """Read a page; raises UnusableInput for what is no readable text file of reasonable size."""
    return Page.decode(read_capped(path, MAX_PAGE_BYTES), Dialect.of(path.name), str(path))


def write_page(path: Path, page: Page) -> None:
    """Replace a file by a page in one step, keeping its permissions; a link keeps pointing where it did."""
    replace_file(path, page.encode())
