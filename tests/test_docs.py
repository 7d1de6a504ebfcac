"""The output shown in the docs is what the commands print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from perilune.cli.main import main

SHOWN = re.compile(r"^```\n(.*?)^```$", re.M | re.S)
ROOT = Path(__file__).parent.parent


def test_the_docs_show_what_is_printed() -> None:
    script = ROOT / "scripts" / "docs_output.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"stale: {done.stdout}; run python scripts/docs_output.py"


def readme_commands() -> list[str]:
    blocks = SHOWN.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("perilune ")]


def test_the_commands_of_the_readme_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("docs", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    found = readme_commands()
    assert len(found) > 7
    for line in found:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        expected = 1 if line.startswith("perilune check") or "--concurrency 128" in line else 0
        assert ended.value.code == expected, (line, said.out[-500:], said.err)
