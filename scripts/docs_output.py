"""Refresh the sample output in the docs: every block that follows a line `<!-- perilune ... -->`.

python scripts/docs_output.py          # rewrite
python scripts/docs_output.py --check  # exit 1 where a block differs from what the command prints
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"<!-- (perilune [^\n]*) -->\n```\n.*?\n```\n", re.S)


def refreshed(match: re.Match[str]) -> str:
    command = match.group(1)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, check=False, timeout=120
    )
    lines = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    return f"<!-- {command} -->\n```\n$ {command}\n{lines}\n```\n"


def main() -> int:
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = BLOCK.sub(refreshed, old)
        if new != old:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(new, encoding="utf-8")
    print("\n".join(stale) or "current")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
