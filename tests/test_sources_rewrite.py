"""Changes of servers made in the text they came from: only the bytes that must change do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perilune.plan.rules import Edit, apply_edits
from perilune.plan.sources.read import read_source
from perilune.plan.sources.rewrite import rewritten
from perilune.plan.sources.text import Text


@dataclass(frozen=True)
class Case:
    """A file, edits of its first server, and the file afterwards; None where the edits have no place in it."""

    id: str
    before: str
    edits: tuple[Edit, ...]
    after: str | None
    name: str = "run.sh"


def put(flag: str, value: str | None = None) -> Edit:
    return Edit("set", flag, value)


def drop(flag: str) -> Edit:
    return Edit("unset", flag)


def env(name: str, value: str) -> Edit:
    return Edit("env", name, value)


LINES = "sglang serve \\\n  --tp-size 16 \\\n  --enable-eplb \\\n  --port 1  # the end\n"
ARRAY = 'A=(\n  --tp-size 16  # all of them\n  --port 1 # here\n)\nexec sglang serve "${A[@]}"\n'
SHELL = (
    Case("a value", LINES, (put("--tp-size", "8"),), LINES.replace("16", "8")),
    Case("a value to quote", LINES, (put("--tp-size", "'a b'"),), LINES.replace("16", "'a b'")),
    Case("a line less", LINES, (drop("--enable-eplb"),), LINES.replace("  --enable-eplb \\\n", "")),
    Case("the first less", LINES, (drop("--tp-size"),), LINES.replace("  --tp-size 16 \\\n", "")),
    Case("the last less", LINES, (drop("--port"),), "sglang serve \\\n  --tp-size 16 \\\n  --enable-eplb  # the end\n"),
    Case("a line more", LINES, (put("--page-size", "64"),), LINES.replace("1  #", "1 \\\n  --page-size 64  #")),
    Case("another name", LINES, (Edit("rename", "--enable-eplb", "--x"),), LINES.replace("--enable-eplb", "--x")),
    Case("on one line", "sglang serve --tp-size 16 --port 1", (drop("--tp-size"), put("--page-size", "64")),
         "sglang serve --port 1 --page-size 64"),
    Case("joined", "sglang serve --tp-size=16 --port=1", (put("--tp-size", "8"),),
         "sglang serve --tp-size 8 --port=1"),
    Case("CR LF", LINES.replace("\n", "\r\n"), (drop("--enable-eplb"), put("--tp-size", "8")),
         LINES.replace("  --enable-eplb \\\n", "").replace("16", "8").replace("\n", "\r\n")),
    Case("in an array", ARRAY, (put("--tp-size", "8"), put("--page-size", "64")),
         'A=(\n  --tp-size 8  # all of them\n  --port 1 --page-size 64 # here\n)\nexec sglang serve "${A[@]}"\n'),
    Case("out of an array", ARRAY, (drop("--tp-size"),),
         'A=(\n    # all of them\n  --port 1 # here\n)\nexec sglang serve "${A[@]}"\n'),
    Case("alone on a line of an array", "A=(\n  --enable-eplb\n  --port 1\n)\nsglang serve ${A[@]}\n",
         (drop("--enable-eplb"),), "A=(\n  --port 1\n)\nsglang serve ${A[@]}\n"),
    Case("with a value on a line of an array", "A=(\n\t--tp-size 16\t\n\t--port 1\n)\nsglang serve ${A[@]}\n",
         (drop("--tp-size"),), "A=(\n\t--port 1\n)\nsglang serve ${A[@]}\n"),
    Case("added to an array", "A=(--port 1)\nA+=(--enable-eplb)\nsglang serve ${A[@]}\n", (drop("--enable-eplb"),),
         "A=(--port 1)\nA+=()\nsglang serve ${A[@]}\n"),
    Case("alone on a line of a string", 'F="\n  --enable-eplb\n  --port 1\n"\nsglang serve $F\n',
         (drop("--enable-eplb"),), 'F="\n  --port 1\n"\nsglang serve $F\n'),
    Case("alone on a line, CR LF", "A=(\r\n  --enable-eplb\r\n  --port 1\r\n)\r\nsglang serve ${A[@]}\r\n",
         (drop("--enable-eplb"),), "A=(\r\n  --port 1\r\n)\r\nsglang serve ${A[@]}\r\n"),
    Case("empty lines that were there", "A=(\n\n  --enable-eplb\n\n  --port 1\n)\nsglang serve ${A[@]}\n",
         (drop("--enable-eplb"),), "A=(\n\n\n  --port 1\n)\nsglang serve ${A[@]}\n"),
    Case("a variable alone on a line", "A=1 \\\nB=2 \\\nsglang serve --port 1\n", (Edit("unset-env", "A"),),
         "B=2 \\\nsglang serve --port 1\n"),
    Case("in a here-document", "bash <<E\nsglang serve \\\n  --tp-size 16 \\\n  --enable-eplb\nE\n",
         (put("--tp-size", "8"), drop("--enable-eplb")), "bash <<E\nsglang serve \\\n  --tp-size 8\nE\n"),
    Case("through a variable", "TP=16 # all\nsglang serve --tp-size $TP\n", (put("--tp-size", "8"),),
         "TP=8 # all\nsglang serve --tp-size $TP\n"),
    Case("through an exported variable", "export TP=16\nsglang serve --tp-size $TP\n", (put("--tp-size", "8"),),
         "export TP=8\nsglang serve --tp-size $TP\n"),
    Case("through a quoted variable", 'TP="16"\nsglang serve --tp-size "$TP"\n', (put("--tp-size", "8"),),
         'TP=8\nsglang serve --tp-size "$TP"\n'),
    Case("a default", "sglang serve --tp-size ${TP:-16}\n", (put("--tp-size", "8"),),
         "sglang serve --tp-size ${TP:-8}\n"),
    Case("in a string of flags", 'F="--tp-size 16 --port 1"\nsglang serve $F\n', (drop("--port"),),
         'F="--tp-size 16"\nsglang serve $F\n'),
    Case("in a shell in a shell", "srun bash -c 'sglang serve --tp-size 16 --port 1'\n", (put("--tp-size", "8"),),
         "srun bash -c 'sglang serve --tp-size 8 --port 1'\n"),
    Case("a variable more", "# c\nsglang serve --port 1\n", (env("A", "x y"),), "# c\nA='x y' sglang serve --port 1\n"),
    Case("a variable's value", "export A=1 # c\nsglang serve\n", (env("A", "2"),), "export A=2 # c\nsglang serve\n"),
    Case("a variable less", "export A=1\nsglang serve\n", (Edit("unset-env", "A"),), "sglang serve\n"),
    Case("a variable in front less", "A=1 B=2 sglang serve\n", (Edit("unset-env", "A"),), "B=2 sglang serve\n"),
    Case("a container's variable", "docker run -e A=1 img sglang serve\n", (env("B", "2"),),
         "docker run -e A=1 --env B=2 img sglang serve\n"),
    Case("a container's variable less", "docker run -e A=1 img sglang serve\n", (Edit("unset-env", "A"),),
         "docker run img sglang serve\n"),
    Case("a value from elsewhere", "sglang serve --tp-size 1$X\n", (put("--tp-size", "8"),),
         "sglang serve --tp-size 8\n"),
)  # fmt: skip

UNIT = "[Service]\nEnvironment=A=1 B=2\nExecStart=-/bin/sglang serve \\\n  --tp-size 16 \\\n  --enable-eplb\n"
MAKE = "TP := 16 # all\nx: ; @true\n\t@sglang serve --tp-size $(TP) \\\n\t  --enable-eplb \\\n\t  --port 1\n"
PAGE = "# A\n\n> ```bash\n> ls\n> ```\n\n  ```sh\n  sglang serve --tp-size 16 \\\n    --enable-eplb\n  ```\n"
MANIFEST = (
    "kubectl apply -f - <<E\napiVersion: v1\nkind: Pod\n"
    "spec: {containers: [{command: [sglang, serve, --tp, '16']}]}\nE\n"
)
COMPOSE = 'services:\n  a: {command: [sglang, serve, --tp-size, "${TP:-16}", --port, $PORT]}\n'
OTHERS = (
    Case("in a unit", UNIT, (put("--tp-size", "8"), drop("--enable-eplb")),
         UNIT.replace("16 \\\n  --enable-eplb", "8"), "a.service"),
    Case("a unit's variable", UNIT, (env("A", "3"),), UNIT.replace("A=1", "A=3"), "a.service"),
    Case("a unit's variable more", UNIT, (env("C", "3"),), None, "a.service"),
    Case("a unit's specifier", UNIT, (put("--tp-size", "%i"),), None, "a.service"),
    Case("in a recipe of make", MAKE, (put("--port", "2"), drop("--enable-eplb")),
         MAKE.replace("\t  --enable-eplb \\\n", "").replace("port 1", "port 2"), "Makefile"),
    Case("a dollar for make", MAKE, (put("--port", "$A"),), None, "Makefile"),
    Case("in a block", PAGE, (put("--tp-size", "8"), drop("--enable-eplb")),
         PAGE.replace("16 \\\n    --enable-eplb", "8"), "a.md"),
    Case("in a manifest in a script", MANIFEST, (put("--tp", "8"),), MANIFEST.replace("'16'", "'8'")),
    Case("a default of compose", COMPOSE, (put("--tp-size", "8"),), COMPOSE.replace("16", "8"), "compose.yaml"),
    Case("in a workflow", "a:\n- run: |\n    sglang serve --tp-size 16\n", (put("--tp-size", "8"),),
         "a:\n- run: |\n    sglang serve --tp-size 8\n", "a.yml"),
    Case("behind set --", 'set -- --tp-size 16\nset -- "$@" --enable-eplb\nsglang serve "$@"\n',
         (put("--tp-size", "8"), drop("--enable-eplb")), 'set -- --tp-size 8\nset -- "$@"\nsglang serve "$@"\n'),
    Case("beside flags of a variable", "sglang serve --model-path m $X --tp-size 16 $Y\n", (put("--tp-size", "8"),),
         "sglang serve --model-path m $X --tp-size 8 $Y\n"),
)  # fmt: skip

POD = """\
apiVersion: v1
kind: Pod   # a pod
spec:
  containers:
  - env:
    - name: A   # why
      value: "1"
    - name: B
      value: b
    command: [sglang, serve]
    args:
    - --tp-size   # all
    - "16"
    # between
    - --enable-eplb
    - --port=1
"""
FLOW = "apiVersion: v1\nkind: Pod\nspec: {containers: [{command: [sglang, serve, --tp-size, '16', --port, '1']}]}\n"
GIVEN = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env: [{name: TP, value: '16'}]\n"
    "    command: [bash, -c, 'sglang serve --tp-size $(TP)']\n"
)
INSIDE = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [sh, -c]
    args:
    - |
      # start
      exec sglang serve --tp-size 16 \\
        --enable-eplb \\
        --port 1
"""
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
data:
  k3.yaml: |
    # sizes
    tp-size: 16  # all
    enable-eplb: true
---
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [sglang, serve, --config, /etc/k3.yaml, --port, "1"]
"""
CONFIG = "# mine\nmodel-path: m\ntp-size: 16  # all\nenable-eplb: true\ncuda-graph-bs-decode: [1, 2]\n"
COMPOSE = "services:\n  s:\n    command: sglang serve --tp-size 16\n    environment:\n      - A=1\n"
DOCKERFILE = 'FROM a\nENV A=1\n# c\nCMD ["sglang", "serve", \\\n  "--tp-size", "16", \\\n  "--enable-eplb"]\n'
FILES = (
    Case("an item", POD, (put("--tp-size", "8"),), POD.replace('"16"', '"8"'), "a.yaml"),
    Case("an item less", POD, (drop("--enable-eplb"),), POD.replace("    - --enable-eplb\n", ""), "a.yaml"),
    Case("two items less", POD, (drop("--tp-size"),), POD.replace('    - --tp-size   # all\n    - "16"\n', ""),
         "a.yaml"),
    Case("items more", POD, (put("--page-size", "64"),), POD + '    - --page-size\n    - "64"\n', "a.yaml"),
    Case("a variable's value", POD, (env("A", "2"),), POD.replace('"1"', '"2"'), "a.yaml"),
    Case("a variable less", POD, (Edit("unset-env", "B"),), POD.replace("    - name: B\n      value: b\n", ""),
         "a.yaml"),
    Case("a variable more", POD, (env("C", "3"),),
         POD.replace("value: b\n", 'value: b\n    - {name: C, value: "3"}\n'), "a.yaml"),
    Case("in brackets", FLOW, (put("--tp-size", "8"), drop("--port"), put("--enable-eplb")),
         FLOW.replace("'16', --port, '1'", "'8', --enable-eplb"), "a.yaml"),
    Case("CR LF", POD.replace("\n", "\r\n"), (drop("--enable-eplb"), put("--page-size", "64")),
         (POD.replace("    - --enable-eplb\n", "") + '    - --page-size\n    - "64"\n').replace("\n", "\r\n"),
         "a.yaml"),
    Case("shell inside", INSIDE, (put("--tp-size", "8"), drop("--enable-eplb")),
         INSIDE.replace("16", "8").replace("        --enable-eplb \\\n", ""), "a.yaml"),
    Case("an entry", CONFIG, (put("--tp-size", "8"),), CONFIG.replace("16", "8"), "c.yaml"),
    Case("an entry less", CONFIG, (drop("--enable-eplb"),), CONFIG.replace("enable-eplb: true\n", ""), "c.yaml"),
    Case("an entry more", CONFIG, (put("--page-size", "64"),), CONFIG + "page-size: 64\n", "c.yaml"),
    Case("a list", CONFIG, (put("--cuda-graph-bs-decode", "4 8"),), CONFIG.replace("[1, 2]", "[4, 8]"), "c.yaml"),
    Case("a file in a ConfigMap", CONFIG_MAP, (put("--tp-size", "8"), drop("--enable-eplb"), put("--page-size", "64")),
         CONFIG_MAP.replace("16", "8").replace("    enable-eplb: true\n", "    page-size: 64\n"), "a.yaml"),
    Case("compose", COMPOSE, (put("--tp-size", "8"), env("A", "2")), COMPOSE.replace("16", "8").replace("=1", "=2"),
         "compose.yaml"),
    Case("compose, a variable more", COMPOSE, (env("B", "2"),), COMPOSE + "      - B=2\n", "compose.yaml"),
    Case("a variable of the build", "FROM a\nARG TP=16\nENV A=$TP\nCMD sglang serve --tp-size $A\n",
         (put("--tp-size", "8"),), "FROM a\nARG TP=8\nENV A=$TP\nCMD sglang serve --tp-size $A\n",
         "Dockerfile"),
    Case("through $(NAME) in a shell", GIVEN, (put("--tp-size", "8"),), GIVEN.replace("'16'", "'8'"),
         "a.yaml"),
    Case("exec form", DOCKERFILE, (put("--tp-size", "8"), drop("--enable-eplb")),
         DOCKERFILE.replace('"16", \\\n  "--enable-eplb"', '"8"'), "Dockerfile"),
    Case("exec form, more", DOCKERFILE, (put("--port", "1"),),
         DOCKERFILE.replace('"--enable-eplb"', '"--enable-eplb", "--port", "1"'), "Dockerfile"),
    Case("what an operator adds", "model: {path: a/b}\nroles:\n  prefill: {nodes: 2, args: {tp-size: 8}}\n",
         (put("--nnodes", "4"),), None, "r.yaml"),
)  # fmt: skip


@pytest.mark.parametrize("case", [*SHELL, *OTHERS, *FILES], ids=lambda case: case.id)
def test_only_what_must_change_does(case: Case) -> None:
    text = Text(case.name, case.before)
    found = read_source(text).servers
    wanted = [apply_edits(found[0].server, case.edits), *(one.server for one in found[1:])]
    assert wanted[0] != found[0].server
    better, left = rewritten(text, found, wanted, read_source)
    if case.after is None:
        assert (better.text, len(left)) == (case.before, 1)
        return
    assert better.text == case.after
    assert not left


def test_a_shared_value_is_left_alone_when_only_one_server_wants_another() -> None:
    text = Text("a.sh", "TP=16\nsglang serve --tp-size $TP &\nsglang serve --tp-size $TP --port 1\n")
    found = read_source(text).servers
    wanted = [found[0].server.set("--tp-size", 8), found[1].server]
    better, left = rewritten(text, found, wanted, read_source)
    assert (better, len(left)) == (text, 1)


def test_a_shared_value_changes_when_every_server_wants_it() -> None:
    text = Text("a.sh", "TP=16\nsglang serve --tp-size $TP &\nsglang serve --tp-size $TP --port 1\n")
    found = read_source(text).servers
    wanted = [one.server.set("--tp-size", 8) for one in found]
    better, left = rewritten(text, found, wanted, read_source)
    assert (better.text, left) == (text.text.replace("16", "8"), [])


def test_the_byte_order_mark_stays() -> None:
    text = Text.decode(b"\xef\xbb\xbfsglang serve --tp-size 16\n", "a.sh")
    found = read_source(text).servers
    better, _ = rewritten(text, found, [found[0].server.set("--tp-size", 8)], read_source)
    assert better.encode() == b"\xef\xbb\xbfsglang serve --tp-size 8\n"
