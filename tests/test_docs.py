"""The output shown in the docs is what the commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_docs_show_what_is_printed() -> None:
    script = ROOT / "scripts" / "docs_output.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"stale: {done.stdout}; run python scripts/docs_output.py"
