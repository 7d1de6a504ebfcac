"""Pasted characters that only look like those of a command."""

from __future__ import annotations

import pytest

from perilune.plan.sources.found import Reading
from perilune.plan.sources.read import read_source
from perilune.plan.sources.text import Text

EN, EM, MINUS, SOFT = "\u2013", "\u2014", "\u2212", "\u2011"
NBSP, ZERO = "\u00a0", "\u200b"
GOOD = 'sglang serve --model-path a/b --tp-size 8 --served-model-name "x y"\n'


def read(content: str, name: str = "a.sh") -> Reading:
    return read_source(Text(name, content))


MEANT = {
    "en dash": (GOOD.replace("--tp", f"{EN}tp"), GOOD),
    "em dash": (GOOD.replace("--tp", f"{EM}tp"), GOOD),
    "two dashes": (GOOD.replace("--tp", f"{EN}{EN}tp"), GOOD),
    "a hyphen and a dash": (GOOD.replace("--tp", f"-{EN}tp"), GOOD),
    "two hyphens of another kind": (GOOD.replace("--tp", f"{SOFT}{SOFT}tp"), GOOD),
    "a minus": (GOOD.replace("--tp", f"{MINUS}{MINUS}tp"), GOOD),
    "within a flag": (GOOD.replace("tp-size", f"tp{EN}size"), GOOD),
    "one letter": (
        f"python3 {EN}m sglang.launch_server --tp-size 8\n",
        "python3 -m sglang.launch_server --tp-size 8\n",
    ),
    "docker": (f"docker run {EN}e A=1 {EM}gpus all i sglang serve\n", "docker run -e A=1 --gpus all i sglang serve\n"),
    "no-break space": (GOOD.replace(" --tp", f"{NBSP}--tp"), GOOD),
    "no-break space in the program": (GOOD.replace("sglang serve", f"sglang{NBSP}serve"), GOOD),
    "no-break space at the start": (f"{NBSP}{GOOD}", f" {GOOD}"),
    "ideographic space": (GOOD.replace("8 ", "8\u3000"), GOOD),
    "zero width": (GOOD.replace("8 ", f"8{ZERO} "), GOOD),
    "zero width before a flag": (GOOD.replace("--tp", f"{ZERO}--tp"), GOOD),
    "byte order mark inside": (GOOD.replace("--tp", "\ufeff--tp"), GOOD),
    "curly quotes": (GOOD.replace('"x y"', "\u201cx y\u201d"), GOOD),
    "curly single quotes": (GOOD.replace('"x y"', "\u2018x y\u2019"), GOOD.replace('"', "'")),
    "curly quotes in JSON": (
        "sglang serve --json-model-override-args '{\u201ca\u201d: 1}'\n",
        "sglang serve --json-model-override-args '{\"a\": 1}'\n",
    ),
    "PowerShell": (GOOD.replace(" --tp", " `\n  --tp"), GOOD.replace(" --tp", " \\\n  --tp")),
    "PowerShell, CR LF": (GOOD.replace(" --tp", " `\r\n  --tp"), GOOD.replace(" --tp", " \\\r\n  --tp")),
    "cmd": (GOOD.replace(" --tp", " ^\n  --tp"), GOOD.replace(" --tp", " \\\n  --tp")),
    "all of it": (
        GOOD.replace(" --tp", f" ^\n{NBSP}{EN}tp").replace("8 --", f"8{ZERO} ` \n  {EM}").replace('"', "\u201d"),
        GOOD.replace(" --tp", " \\\n --tp").replace("8 --", "8 \\\n  --"),
    ),
    "in an array": (f"A=({EN}tp-size 8)\nsglang serve ${{A[@]}}\n", "A=(--tp-size 8)\nsglang serve ${A[@]}\n"),
    "in a string": (f'F="{EN}tp-size 8"\nsglang serve $F\n', 'F="--tp-size 8"\nsglang serve $F\n'),
    "in another shell": (f"srun bash -c 'sglang serve {EN}tp-size 8'\n", "srun bash -c 'sglang serve --tp-size 8'\n"),
}  # fmt: skip


@pytest.mark.parametrize(("pasted", "meant"), MEANT.values(), ids=MEANT)
def test_a_command_is_read_as_it_was_meant_and_the_characters_are_errors(pasted: str, meant: str) -> None:
    reading = read(pasted)
    assert reading.text is not None
    assert {(note.id, note.severity) for note in reading.notes} == {("typography", "error")}
    assert reading.text.text == meant
    assert [one.server for one in reading.servers] == [one.server for one in read(meant).servers]
    assert "typography" not in {note.id for note in read(reading.text.text).notes}


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (f"# {EN} c\nsglang serve {EN}tp 8", 2, "Column 14 has EN DASH (U+2013) where -- belongs."),
        (f"sglang serve {EM}tp 8 {EM}port 1", 1, "Columns 14, 20 have EM DASH (U+2014) where -- belongs."),
        (f"sglang serve --tp{NBSP}8", 1, "Column 18 has NO-BREAK SPACE (U+00A0) where a blank belongs."),
        (f"sglang serve --tp 8{ZERO}", 1, "Column 20 has ZERO WIDTH SPACE (U+200B) which nothing shows"),
        ("sglang serve `\n  --tp 8", 1, "Column 14 has the line end of PowerShell (`) where \\ belongs."),
        ("sglang serve ^\n  --tp 8", 1, "Column 14 has the line end of cmd (^) where \\ belongs."),
    ],
)
def test_the_character_and_its_column_are_named(content: str, line: int, said: str) -> None:
    (note,) = read(content).notes
    assert note.line == line
    assert said in note.message


@pytest.mark.parametrize(
    "content",
    [
        f"# a {EN} b{NBSP}c {EM}tp \u201cx\u201d\n{GOOD}",
        f"echo {EN}tp \u201chello\u201d{NBSP}{ZERO}\n{GOOD}",
        GOOD.replace("x y", "Kimi\u2019s"),
        GOOD.replace('"x y"', "'Kimi\u2019s'"),
        GOOD.replace("x y", f"Kimi {EN} the{NBSP}third"),
        GOOD.replace("x y", f"a {EN}b"),
        GOOD + "X=`hostname`\nif [[ $a =~ ^ ]]; then echo; fi\n",
        GOOD.replace("a/b", "/data/mod\u00e8le"),
    ],
)
def test_other_text_stays(content: str) -> None:
    reading = read(content)
    assert not reading.notes
    assert reading.text == Text("a.sh", content)
    assert len(reading.servers) == 1


POD = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [sglang, serve]\n"
    '    args:\n    - --tp-size\n    - "8"\n'
)


@pytest.mark.parametrize(
    ("content", "name", "meant"),
    [
        (POD.replace("--tp", f"{EN}tp"), "a.yaml", POD),
        (POD.replace('"8"', "\u201c8\u201d"), "a.yaml", POD),
        (POD.replace("    - --", f"{NBSP}{NBSP}  - --"), "a.yaml", POD),
        ("services:\n  s:\n    command: sglang serve \u2014tp 8\n", "compose.yaml",
         "services:\n  s:\n    command: sglang serve --tp 8\n"),
        (f"FROM a\nCMD sglang serve {EN}tp 8\n", "Dockerfile", "FROM a\nCMD sglang serve --tp 8\n"),
        (f'FROM a\nCMD ["sglang", "serve", "{EN}tp", "8"]\n', "Dockerfile",
         'FROM a\nCMD ["sglang", "serve", "--tp", "8"]\n'),
    ],
)  # fmt: skip
def test_in_other_forms(content: str, name: str, meant: str) -> None:
    reading = read(content, name)
    assert reading.text is not None
    assert reading.text.text == meant
    assert {note.id for note in reading.notes} - {"pod-shared-memory"} == {"typography"}
    assert [one.server for one in reading.servers] == [one.server for one in read(meant, name).servers]
