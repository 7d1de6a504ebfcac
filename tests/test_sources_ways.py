"""Servers of one script that can run together, and those that cannot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from perilune.plan.sources.read import read_source
from perilune.plan.sources.text import Text
from perilune.plan.sources.ways import Choice, groups

BASH = shutil.which("bash")


def ports(content: str, name: str = "a.sh") -> list[set[str]]:
    """The groups of servers that run together, by their ports."""
    found = read_source(Text(name, content)).servers
    named, complete = groups([one.ways for one in found])
    assert complete
    return [{found[i].server.value("--port") or "" for i in group} for group in named]


def serve(port: int, *flags: str) -> str:
    return " ".join(["sglang serve --tp 8", *flags, f"--port {port}"])


TOGETHER = {
    "in a row": (f"{serve(1)} &\n{serve(2)}", [{"1", "2"}]),
    "if and else": (f"if [ $R = p ]; then {serve(1)}; else {serve(2)}; fi", [{"1"}, {"2"}]),
    "elif": (
        f"if [[ $R == p ]]; then {serve(1)}; elif [[ $R == d ]]; then {serve(2)}; else {serve(3)}; fi",
        [{"1"}, {"2"}, {"3"}],
    ),
    "case": (f"case $1 in p) {serve(1)};; d|e) {serve(2)};; *) {serve(3)};; esac", [{"1"}, {"2"}, {"3"}]),
    "beside a branch": (f"{serve(9)} &\nif a; then {serve(1)}; else {serve(2)}; fi", [{"1", "9"}, {"2", "9"}]),
    "two tests of one variable": (
        f"if [ $R = p ]; then {serve(1)}; fi\nif [ $R = d ]; then {serve(2)}; fi",
        [{"1"}, {"2"}],
    ),
    "the variable by another name": (
        f'R=$1\nif [ "$R" = p ]; then {serve(1)}; fi\ncase $1 in d) {serve(2)};; esac',
        [{"1"}, {"2"}],
    ),
    "not equal": (f"if [ $R != p ]; then {serve(1)}; fi\nif [ $R = p ]; then {serve(2)}; fi", [{"1"}, {"2"}]),
    "two variables": (
        f"if [ $A = p ]; then {serve(1)} & fi\nif [ $B = d ]; then {serve(2)} & fi",
        [{"1", "2"}],
    ),
    "a test and what follows": (f"[ $R = p ] && {serve(1)}\n[ $R = p ] || {serve(2)}", [{"1"}, {"2"}]),
    "exec": (f"if [ $R = p ]; then exec {serve(1)}; fi\nexec {serve(2)}", [{"1"}, {"2"}]),
    "exec behind a test": (f"[ $R = p ] && exec {serve(1)}\nexec {serve(2)}", [{"1"}, {"2"}]),
    "exit": (f"if [ $R = p ]; then {serve(1)}; exit; fi\n{serve(2)}", [{"1"}, {"2"}]),
    "a loop": (f"for r in p d; do if [ $r = p ]; then {serve(1)} & else {serve(2)} & fi; done", [{"1", "2"}]),
    "a loop in a branch": (
        f"if [ $R = p ]; then for i in 1 2; do {serve(1)} & done; else {serve(2)}; fi",
        [{"1"}, {"2"}],
    ),
    "functions in branches": (
        f"p() {{ {serve(1)}; }}\nd() {{ {serve(2)}; }}\ncase $1 in p) p;; d) d;; esac",
        [{"1"}, {"2"}],
    ),
    "a function called for both": (
        f"go() {{ case $1 in p) {serve(1)};; d) {serve(2)};; esac; }}\ngo p &\ngo d",
        [{"1", "2"}],
    ),
    "a function of its argument's name": (
        f"go() {{ local r=$1; if [ $r = p ]; then {serve(1)}; else {serve(2)}; fi; }}\ngo p &\ngo d",
        [{"1", "2"}],
    ),
    "what the script itself decides": (f"R=p\nif [ $R = p ]; then {serve(1)}; else {serve(2)}; fi", [{"1"}, {"2"}]),
    "a default decides nothing": (
        f"R=${{1:-p}}\nif [ $R = p ]; then {serve(1)}; else {serve(2)}; fi",
        [{"1"}, {"2"}],
    ),
    "one after the other": (f"{serve(1)} &\nP=$!\nbench\nkill $P\n{serve(2)} &\nbench", [{"1"}, {"2"}]),
    "after all have ended": (f"{serve(1)} &\n{serve(2)} &\nwait\n{serve(3)}", [{"1", "2"}, {"3"}]),
    "after a wait for something else": (f"{serve(1)} &\nbench &\nwait $!\n{serve(2)} &", [{"1", "2"}]),
    "one after the other in a loop": (
        f"for c in a b; do\n{serve(1)} &\nkill $!\n{serve(2)} &\nkill $!\ndone",
        [{"1"}, {"2"}],
    ),
    "a container stopped": (
        f"docker run -d i {serve(1)}\nsudo docker rm -f k3\ndocker run -d i {serve(2)}",
        [{"1"}, {"2"}],
    ),
    "stopped at the end": (f"trap 'kill 0' EXIT\n{serve(1)} &\n{serve(2)} &\nwait", [{"1", "2"}]),
    "stopped at the start": (f"pkill -f sglang || true\n{serve(1)} &\n{serve(2)}", [{"1", "2"}]),
    "a way to stop that is not gone": (
        f"stop() {{ kill $P; }}\n{serve(1)} &\n{serve(2)} &",
        [{"1", "2"}],
    ),
    "an option that sets the variable": (
        "R=p\nwhile [ $# -gt 0 ]; do case $1 in --role) R=$2; shift;; esac; shift; done\n"
        f"if [ $R = p ]; then {serve(1)}; else {serve(2)}; fi",
        [{"1"}, {"2"}],
    ),
    "a variable set by another test": (
        f"if [ $1 = p ]; then R=p; else R=d; fi\nif [ $R = p ]; then {serve(1)}; else {serve(2)}; fi",
        [{"1"}, {"2"}],
    ),
    "inside another shell": (
        f"if [ $R = p ]; then srun bash -c '{serve(1)}'; else srun bash -c '{serve(2)}'; fi",
        [{"1"}, {"2"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), TOGETHER.values(), ids=TOGETHER)
def test_servers_that_run_together(content: str, expected: list[set[str]]) -> None:
    assert ports(content) == expected


RUN_BY_BASH = {
    name: content
    for name, (content, _) in TOGETHER.items()
    if not any(word in content for word in ("kill", "docker", "srun", "wait\n"))
}


@pytest.mark.skipif(BASH is None, reason="no Bash here")
@pytest.mark.parametrize("content", RUN_BY_BASH.values(), ids=RUN_BY_BASH)
@pytest.mark.parametrize("role", ["p", "d", "x"])
def test_what_bash_runs_together_is_in_one_group(content: str, role: str, tmp_path: Path) -> None:
    program = tmp_path / "sglang"
    program.write_text(f'#!{BASH}\nfor port; do :; done\necho "$port" >> ports\n')
    program.chmod(0o755)
    (tmp_path / "a.sh").write_text(content + "\nwait\n")
    environment = {"PATH": str(tmp_path), "R": role, "A": role, "B": role}
    subprocess.run(
        [str(BASH), "a.sh", role], cwd=tmp_path, env=environment, check=False, timeout=10, capture_output=True
    )
    log = tmp_path / "ports"
    started = set(log.read_text().split()) if log.exists() else set()
    assert any(started <= group for group in ports(content)), started


@pytest.mark.parametrize(
    ("content", "argv"),
    [
        ('R=p\nif [ $R = p ]; then X=1; else X=2; fi\nsglang serve --tp "$X"', ["1"]),
        ('R=${R:-p}\nif [ $R = p ]; then X=1; else X=2; fi\nsglang serve --tp "$X"', ["1", "2"]),
        ('go() { if [ $1 = p ]; then X=1; else X=2; fi; sglang serve --tp "$X"; }\ngo p\ngo d', ["1", "2"]),
        ('if [ -z "$N" ]; then exit 1; fi\nX=1\nsglang serve --tp "$X"', ["1"]),
        ('for t in a b c d e f g h; do if [ $t = "$1" ]; then echo; fi; done\nsglang serve --tp 1', ["1"]),
    ],
)
def test_only_the_ways_that_a_run_can_go(content: str, argv: list[str]) -> None:
    assert [one.server.value("--tp") for one in read_source(Text("a.sh", content)).servers] == argv


def test_branches_that_change_nothing_do_not_multiply() -> None:
    content = "".join(f"if t{i}; then echo {i}; fi\n" for i in range(40)) + serve(1)
    reading = read_source(Text("a.sh", content))
    assert (len(reading.servers), reading.notes) == (1, ())


COMPOSE = """\
services:
  a: {{image: i, command: {a}, profiles: [one]}}
  b: {{image: i, command: {b}, profiles: [two, three]}}
  c: {{image: i, command: {c}}}
"""


def test_compose_profiles_are_alternatives() -> None:
    content = COMPOSE.format(a=serve(1), b=serve(2), c=serve(3))
    assert ports(content, "compose.yaml") == [{"1", "3"}, {"2", "3"}]


def manifest(name: str, port: int, namespace: str = "") -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return (
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{where}}}\n"
        f"spec: {{containers: [{{command: [sglang, serve, --tp, '8', --port, '{port}']}}]}}\n"
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("k3-prefill", "k3-decode"), [{"0", "1"}]),
        (("k3-prefill", "other-decode"), [{"0", "1"}]),
        (("a-prefill", "a-decode", "b-prefill", "b-decode", "router"), [{"0", "1", "4"}, {"2", "3", "4"}]),
        (("a-prefill/x", "a-decode/y"), [{"0"}, {"1"}]),
    ],
)
def test_manifests_of_unrelated_names(names: tuple[str, ...], expected: list[set[str]]) -> None:
    content = "".join(manifest(name.partition("/")[0], i, name.partition("/")[2]) for i, name in enumerate(names))
    assert ports(content, "a.yaml") == expected


def test_the_largest_groups_of_ways() -> None:
    one, two, three = (frozenset({value}) for value in "abc")
    ways = [{"x": Choice(one)}, {"x": Choice(two)}, {"y": Choice(one)}, {"y": Choice(None, one)}, {"x": Choice(three)}]
    assert groups([(way,) for way in ways]) == ([[0, 2], [0, 3], [1, 2], [1, 3], [2, 4], [3, 4]], True)
    many = [({f"{i}": Choice(value)},) for i in range(12) for value in (one, two)]
    assert groups(many)[1] is False


@pytest.mark.parametrize(
    ("content", "hosts"),
    [
        (f"{serve(1)} &\n{serve(2)} &\nwait", ["the machine of a.sh"] * 2),
        (f"{serve(1)} &\n{serve(2)}", ["the machine of a.sh"] * 2),
        (f"{serve(1)}\n{serve(2)}", ["", ""]),
        (f"ssh me@n1 '{serve(1)}' &\nssh -p 22 n2 \"{serve(2)}\" &", ["n1", "n2"]),
        (f"srun -N1 {serve(1)} &\nsrun -N1 {serve(2)} &", ["", ""]),
        (f"docker run -d --network host i {serve(1)}\ndocker run --net=host i {serve(2)}", ["the machine of a.sh"] * 2),
        (f"docker run -d i {serve(1)}\ndocker run -d i {serve(2)}", ["", ""]),
        (f"docker exec -i c bash <<E &\n{serve(1)}\nE\ndocker exec -i d bash <<E &\n{serve(2)}\nE\n", ["", ""]),
        (f"cat <<E > a.sh\n{serve(1)} &\nE\ncat <<E > b.sh\n{serve(2)} &\nE\n", ["", ""]),
        (f"docker exec -d c {serve(1)}\ndocker exec -d d {serve(2)}", ["", ""]),
    ],
)
def test_the_machine_that_servers_share(content: str, hosts: list[str]) -> None:
    assert [one.host for one in read_source(Text("a.sh", content)).servers] == hosts
