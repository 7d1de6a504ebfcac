"""Convert the tables of 300 pages of 1,000 lines on one core: `python benchmarks/cookbook.py [--check]`.

The pages are made of the five real pages under tests/mdx/pages, whole, and filled with prose up to 1,000 lines.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from perilune.cookbook.files import find_pages
from perilune.cookbook.page import Dialect, Page
from perilune.cookbook.tables.run import convert_files

REAL = Path(__file__).parent.parent / "tests" / "mdx" / "pages"
PAGES = 300
LINES = 1_000
SECONDS = 10.0
PROSE = "Prefill and decode share **one** pool unless `--disaggregation-mode` splits them, see [PD](#pd).\n"


def build(folder: Path) -> None:
    """Write the pages; each is one real page, as often as it fits, and prose."""
    real = [Page.decode(path.read_bytes(), Dialect.MDX, path.name) for path in sorted(REAL.glob("*.mdx"))]
    for number in range(PAGES):
        page = real[number % len(real)]
        head = page.frontmatter[1] + 1 if page.frontmatter else 0
        lines = page.lines[:head]
        while len(lines) + len(page.lines) - head < LINES:
            lines += page.lines[head:]
        lines += [PROSE, "\n"] * ((LINES - len(lines)) // 2)
        lines += ["\n"] * (LINES - len(lines))
        (folder / f"page{number:03}.mdx").write_text("".join(lines), encoding="utf-8")


def main() -> int:
    """Measure, print, and with --check fail when it takes too long."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        wall, cpu = time.perf_counter(), time.process_time()
        done = [outcome.without_pages() for outcome in convert_files(find_pages([folder]), "jsx")]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    refused = [outcome for outcome in done if outcome.refusals]
    tables, cells = sum(outcome.tables for outcome in done), sum(outcome.cells for outcome in done)
    print(f"{len(done)} pages of {LINES:,} lines, {tables:,} tables, {cells:,} cells, {len(refused)} refused")
    print(f"{cpu:.2f} s of CPU ({wall:.2f} s on the clock), {cpu / len(done) * 1e3:.1f} ms a page")
    return 1 if refused or ("--check" in sys.argv and cpu > SECONDS) else 0


if __name__ == "__main__":
    sys.exit(main())
