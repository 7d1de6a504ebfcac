"""What tests share: the command line run in this process, and property tests that try the same examples every time.

`--hypothesis-profile default` varies the examples.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

from perilune.cli.main import main

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@dataclass
class Run:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def perilune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def run(command: str, stdin: str = "") -> Run:
        monkeypatch.setattr(sys, "argv", ["perilune", *shlex.split(command)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Run(int(ended.value.code or 0), captured.out, captured.err)

    return run
