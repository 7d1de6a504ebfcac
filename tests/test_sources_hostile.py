"""Files that nobody should have to read: one clear sentence, quickly."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perilune.errors import UnusableInput
from perilune.plan.sources.read import read_file, read_source
from perilune.plan.sources.rewrite import rewritten
from perilune.plan.sources.text import Text
from perilune.plan.sources.ways import groups

SECONDS = 5.0
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
POD_BOMB = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - {name: A0, value: xxxxxxxxxx}\n"
    + "".join(f"    - {{name: A{i}, value: {f'$(A{i - 1})' * 8}}}\n" for i in range(1, 30))
    + "    command: [sglang, serve, $(A29)]\n"
)
BUILD_BOMB = (
    "FROM a\nARG A0=xxxxxxxxxx\n"
    + "".join(f"ARG A{i}=$A{i - 1}$A{i - 1}\n" for i in range(1, 60))
    + "ENV A=$A59\nCMD sglang serve $A\n"
)
HELD = (
    ("a long unit", "a.service", b"[Service]\nExecStart=sglang serve \\\n" + b"  --tp 8 \\\n" * 300_000, "256 KiB"),
    ("a unit of comments", "a.service", b"[Service]\nExecStart=sglang serve \\\n" + b"#\n" * 500_000, "broken"),
    ("a long recipe", "a.mk", b"x:\n" + b"\tsglang serve --tp 8 \\\n" * 100_000, "256 KiB"),
    ("a long block", "a.md", b"```\n" + b"sglang serve --tp 8\n" * 50_000 + b"```\n", "256 KiB"),
)  # fmt: skip
KEPT = "apiVersion: v1\nkind: Pod\nspec: {containers: [{command: [sglang, serve, --tp, '8']}]}\n"
REFUSED = (
    ("ten megabytes of YAML", "a.yaml", b"a: 1\n" * 2_000_000, "4,194,304 bytes"),
    ("ten megabytes of shell", "a.sh", b"echo a\n" * 1_500_000, "4,194,304 bytes"),
    ("three megabytes of shell", "a.sh", b"echo a\n" * 400_000, "256 KiB"),
    ("ten megabytes in one line", "a.sh", b"x" * 10_000_000, "4,194,304 bytes"),
    ("too many values", "a.yaml", b"- a\n" * 900_000, "400,000"),
    ("deep YAML", "a.yaml", b"[" * 100_000, "100 deep|nesting depth"),
    ("deep blocks", "a.yaml", b"".join(b" " * i + b"a:\n" for i in range(300)), "100 deep"),
    ("aliases within aliases", "a.yaml", BOMB.encode(), "none of the YAML forms"),
    ("binary", "a.yaml", bytes(range(256)), "binary"),
    ("UTF-16", "a.sh", "sglang serve".encode("utf-16"), "UTF-16"),
    ("Latin-1", "a.yaml", b"a: 1\nb: \xe9\n", "line 2: The text is not UTF-8"),
    ("an open quote", "a.sh", b"echo a\nsglang serve --tp '8\n", "broken"),
    ("an open brace", "a.sh", b"f() { sglang serve\n", "broken"),
    ("only brackets", "a.sh", b"(" * 50_000, "broken|deep"),
    ("deep substitutions", "a.sh", b"$(" * 20_000 + b")" * 20_000, "broken|deep"),
    ("deep ifs", "a.sh", b"if a; then " * 3_000 + b"sglang serve\n" + b"fi; " * 3_000, "broken|deep"),
    ("many open ifs", "a.sh", b"if a; then " * 20_000, "deep"),
    ("a long chain", "a.sh", b"a && " * 50_000 + b"a", "20,000 commands"),
    ("a long pipe", "a.sh", b"a | " * 60_000 + b"a", "20,000 commands"),
    ("many nots", "a.sh", b"! " * 120_000 + b"a", "8,192 words"),
    ("a pod's variables within variables", "a.yaml", POD_BOMB.encode(), "line 11: Its variables grow to more than"),
    ("a build's variables within variables", "Dockerfile", BUILD_BOMB.encode(), "grow to more than 256 KiB"),
    ("a branch a line", "a.sh", b"".join(b'if [ "$A%d" = x ]; then X%d=1; fi\n' % (i, i) for i in range(5000)),
     "branches more often"),
    ("dashes of other scripts", "a.sh", b"sglang serve " + "\u2013tp 8 ".encode() * 20_000, "8,192 words"),
    ("blanks of other scripts", "a.yaml", b"a:\n" + "\u00a0- b\n".encode() * 200_000, "line 3"),
    ("joined lines", "a.sh", b"sglang serve " + b"--tp 8 \\\n" * 20_000, "8,192 words"),
    ("a long instruction", "Dockerfile", b"FROM a\nCMD sglang serve \\\n" + b"--tp 8 \\\n" * 50_000, "256 KiB"),
    ("a template", "a.yaml", b"a: {{ .Values.x }}\nb: {{- if x }}\n", "helm template"),
    ("tabs", "a.yaml", b"a:\n\t- b\n", "line 2"),
    ("no form at all", "a.yaml", b"- 1\n- 2\n", "none of the YAML forms"),
    ("a key twice", "a.yaml", b"a: 1\nb: {c: 1,\n  c: 2}\n", "line 3: The key c stands twice"),
    ("a merge conflict", "a.sh", b"<<<<<<< HEAD\nsglang serve\n=======\nsglang serve --tp 8\n>>>>>>> b\n",
     "line 1: It holds"),
    ("a template of a script", "a.sh", b"sglang serve {% if x %}--tp 8{% endif %}\n", "line 1: It is a template"),
    ("a template by its name", "a.sh.j2", b"sglang serve --tp {{ tp }}\n", "line 1: It is a template"),
    ("ten thousand servers", "a.sh", b"sglang serve --tp 8\n" * 10_000, "more than 2,000 servers"),
    ("ten thousand programs", "a.service", b"[Service]\n" + b"ExecStart=sglang serve\n" * 10_000, "more than 2,000"),
    ("ten thousand steps", "a.yaml", b"- run: sglang serve --tp 8\n" * 10_000, "more than 2,000 servers"),
    ("ten thousand blocks", "a.md", b"```\nsglang serve\n```\n" * 10_000, "Too many of its blocks"),
    ("a Makefile's variables within variables", "Makefile", b"A0 := xxxxxxxx\n"
     + b"".join(b"A%d := $(A%d)$(A%d)\n" % (i, i - 1, i - 1) for i in range(1, 60)), "grow to more than 256 KiB"),
    ("empty", "a.yaml", b"", "none of the YAML forms"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "raw", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_one_clear_sentence(name: str, raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    start = time.process_time()
    with pytest.raises(UnusableInput) as caught:
        read_file(path)
    sentence = str(caught.value)
    assert any(part in sentence for part in said.split("|")), sentence
    assert name in sentence
    assert len(sentence) < 400
    assert "\n" not in sentence
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(("name", "raw", "said"), [case[1:] for case in HELD], ids=[case[0] for case in HELD])
def test_a_part_that_is_not_read_is_said(name: str, raw: bytes, said: str) -> None:
    start = time.process_time()
    reading = read_source(Text.decode(raw, name))
    assert not reading.servers
    assert [said in note.message for note in reading.notes if note.unread] == [True]
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(
    "raw",
    [
        KEPT.encode(),
        b"\xef\xbb\xbf" + KEPT.encode(),
        KEPT.replace("\n", "\r\n").encode(),
        KEPT.rstrip("\n").encode(),
        b"---\n" + KEPT.encode() + b"...\n---\n",
        b"x: " + b"y" * 1_000_000 + b"\n---\n" + KEPT.encode(),
    ],
    ids=["plain", "byte order mark", "CR LF", "no last line end", "document marks", "a long value"],
)
def test_unusual_files_are_read(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(raw)
    assert [one.server.argv for one in read_file(path).servers] == [("--tp", "8")]


@pytest.mark.parametrize("kind", ["folder", "nothing", "pipe", "device", "link to itself", "link to nothing"])
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind.startswith("link"):
        path.symlink_to(path if kind.endswith("itself") else tmp_path / "b.sh")
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(UnusableInput, match=str(path)):
        read_file(path)


def test_an_alias_of_itself_holds_no_server() -> None:
    assert not read_source(Text("a.yaml", "services: &a\n  s: *a\n")).servers


def test_nothing_in_a_script_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    read_source(Text("a.sh", f'touch {mark}\nX=$(touch {mark})\nsglang serve --tp `touch {mark}` "$(touch {mark})"'))
    assert not mark.exists()


def test_many_combinations_of_branches_are_capped() -> None:
    content = "".join(f"if t{i}; then A{i}=1; else A{i}=2; fi\n" for i in range(200)) + "sglang serve --tp $A1"
    start = time.process_time()
    reading = read_source(Text("a.sh", content))
    assert len(reading.servers) <= 32
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(
    "content",
    [
        "".join(f"sglang serve --tp 8 --port {i} &\n" for i in range(500)),
        "cat <<A <<B <<C\n" * 2_000 + "sglang serve",
        "case $1 in\n" + "".join(f"p{i}) sglang serve --port {i};;\n" for i in range(500)) + "esac",
        "\\" * 100_000,
        "f() { f; }\nf\nsglang serve",
        "f() { g; g; }\ng() { f; f; }\nf",
        'A=1\nA="$A$A"\n' * 40 + "sglang serve --x $A",
    ],
    ids=["side by side", "open documents", "many arms", "backslashes", "recursion", "mutual recursion", "doubling"],
)
def test_runaway_scripts_end(content: str) -> None:
    start = time.process_time()
    with suppress(UnusableInput):
        read_source(Text("a.sh", content))
    assert time.process_time() - start < SECONDS


PIECES = st.sampled_from(
    ["sglang serve", " --tp 8", "\n", "'", '"', "$X", "${X:-1}", "(", ")", "{", "}", "\\", "A=(", "fi", "if a; then ",
     "f() ", "<<E\n", "E\n", "&", "|", ";", "bash -c ", "docker run img ", "- ", ": ", "args:", "é", "\r\n", "#",
     "&a ", "*a", "<<: ", "[", "]", "{{ x }}", "<node0-ip>", "kind: Pod\napiVersion: v1\n", "FROM x\n", "CMD ", "|-\n ",
     "\\\n", "\\ \n", " \u2013tp 8", "\u00a0", "\u200b", "\u201c", " `\n -", " ^\n -", "$$", "$(A)", "$(", "ARG A=1\n",
     "ENV B=$A\n", "FROM a AS b\n", "<<-E\n", "<<< ", "exec ", "exit\n", "kill 1\n", "case $1 in a) ", ";; esac\n",
     "else ", "[ $X = 1 ]", " && ", "for r in a b; do ", "done\n", " --config x.yaml", "cat > r.sh ", "ssh n1 ",
     "# perilune commands: platform b300\n", "srun -N2 "]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=25).map("".join), st.sampled_from(["a.sh", "a.yaml", "Dockerfile", "a"]))
def test_any_text_is_read_or_refused(content: str, name: str) -> None:
    try:
        reading = read_source(Text(name, content))
    except UnusableInput:
        return
    assert reading.text is not None
    for one in reading.servers:
        assert tuple(word.text for word in one.words) == one.server.argv
        assert all(word.at is None or 0 <= word.at <= len(reading.text.text) for word in one.words)
    groups([one.ways for one in reading.servers])
    wanted = [one.server.set("--port", 1234) for one in reading.servers]
    better, left = rewritten(reading.text, reading.servers, wanted, read_source)
    assert left or {one.server.value("--port") for one in read_source(better).servers} <= {"1234"}


@pytest.mark.parametrize(
    "script",
    [
        "A=xxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A$A$A\n" * 12 + "sglang serve --model-path $A\n",
        "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}" "${A[@]}" "${A[@]}")\n' * 20 + 'sglang serve "${A[@]}"\n',
        "A=x\n" + "A+=$A$A$A$A\n" * 40 + "sglang serve --model-path $A\n",
    ],
)
def test_variables_within_variables_end_in_one_sentence(tmp_path: Path, script: str) -> None:
    path = tmp_path / "bomb.sh"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "perilune", "check", "--platform", "b300", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    assert "grow to more than" in done.stderr
    assert "bomb.sh, line" in " ".join(done.stderr.split())
