"""Lines that backslashes join, held against Bash itself."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from perilune.plan.sources.read import read_source
from perilune.plan.sources.text import Text

BASH = shutil.which("bash")
SCRIPTS = {
    "plain": "sglang serve \\\n  --tp 8 \\\n  --port 1\n",
    "glued": "sglang serve --mem 0.85\\\n--port 1\n",
    "glued to an indent": "sglang serve --mem 0.85\\\n  --port 1\n",
    "in the middle of a word": "sglang serve --model-path a/b\\\nc --tp 8\n",
    "a blank behind": "sglang serve --tp 8 \\ \n  --port 1\n",
    "two blanks behind": "sglang serve --tp 8 \\  \n  --port 1\n",
    "a tab behind": "sglang serve --tp 8 \\\t\n  --port 1\n",
    "a blank behind a word": "sglang serve --tp 8\\ \n  --port 1\n",
    "a blank at the very end": "sglang serve --tp 8 \\ ",
    "a comment behind": "sglang serve --tp 8 \\ # eight\n  --port 1\n",
    "a comment between": "sglang serve --tp 8 \\\n  # --dp 8 \\\n  --port 1\n",
    "two backslashes": "sglang serve --tp 8 \\\\\n  --port 1\n",
    "in double quotes": 'sglang serve --name "a\\\nb" --tp 8\n',
    "in single quotes": "sglang serve --name 'a\\\nb' --tp 8\n",
    "behind an apostrophe in a comment": "# don't\nsglang serve --tp 8\\\n--port 1\n",
    "behind a here-document": "cat <<E >/dev/null\ndon't \\\n x\nE\nsglang serve --tp 8\\\n--port 1\n",
    "an empty line in between": "sglang serve --tp 8 \\\n\n  --port 1\n",
    "an escaped blank": "sglang serve --name a\\ b --tp 8\n",
    "in an array": 'A=(--tp 8\\\n--port 1 \\ \n --x)\nsglang serve "${A[@]}"\n',
    "in a variable": 'A="--tp 8\\\n--port 1"\nsglang serve $A\n',
}


def run_by_bash(script: str) -> list[str]:
    """What a program called `sglang` gets from Bash."""
    stub = "sglang() { printf '%s\\0' \"$@\"; }\n"
    done = subprocess.run(
        [str(BASH), "-c", stub + script], capture_output=True, text=True, check=False, timeout=10, env={"PATH": ""}
    )
    return done.stdout.split("\0")[1:-1]


@pytest.mark.skipif(BASH is None, reason="no Bash here")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_server_gets_the_words_that_bash_gives_it(script: str) -> None:
    (found,) = read_source(Text("a.sh", script)).servers
    assert list(found.server.argv) == run_by_bash(script)


@pytest.mark.parametrize(
    ("script", "name", "line"),
    [
        ("sglang serve --tp 8 \\\n --mem 0.85\\\n--port 1\n", "line-glued", 2),
        ("sglang serve --tp 8 \\\n --mem 0.85 \\ \n --port 1\n", "line-lost", 2),
        ("sglang serve --tp 8 \\\n --mem 0.85 \\\t \n --port 1\n", "line-lost", 2),
        ("sglang serve --tp 8 \\\n --mem 0.85 \\ \n", "line-lost", 2),
        ("sglang serve --tp 8 \\\n --mem 0.85\n --port 1\n", "line-lost", 3),
        ("srun bash -c 'sglang serve --tp 8\\\n--port 1'\n", "line-glued", 1),
        ('srun bash -c "sglang serve --tp 8 \\ \n --port 1"\n', "line-lost", 1),
        ("A=(\n --tp 8\\\n--port 1)\nsglang serve ${A[@]}\n", "line-glued", 2),
    ],
)
def test_lost_and_glued_flags_are_said_with_their_line(script: str, name: str, line: int) -> None:
    notes = read_source(Text("a.sh", script)).notes
    assert [(note.id, note.severity, note.line) for note in notes] == [(name, "error", line)]


@pytest.mark.parametrize(
    "script",
    [
        "sglang serve --model-path a/b\\\nc --tp 8\n",
        "sglang serve --tp 8 \\\n\n",
        "echo a\\\n--tp\nsglang serve --tp 8\n",
        "sglang serve --served-model-name 'a \\ \n--port' --tp 8\n",
        "# sglang serve --tp 8 \\ \n#  --port 1\nsglang serve --tp 8\n",
    ],
)
def test_other_backslashes_are_let_be(script: str) -> None:
    assert not read_source(Text("a.sh", script)).notes
