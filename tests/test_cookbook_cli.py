"""`perilune cookbook` as a command: its JSON, exit codes, files written whole, and files that are no pages."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perilune.cli.main import main
from perilune.cookbook.page import MAX_PAGE_BYTES
from perilune.plan.rules import Finding

TABLE = "| a | b |\n|---|---|\n| c | d |\n"
GOOD = f"# page\n\n{TABLE}\nafter\n"
PLAIN = "# page\n\nno table\n"
BAD = f"# page\n\n{TABLE}\n<Tab>\n"


@dataclass
class Run:
    code: int
    out: str
    err: str

    @property
    def files(self) -> dict[str, Any]:
        return {Path(file["path"]).name: file for file in json.loads(self.out)["files"]}


Perilune = Callable[[str], Run]


@pytest.fixture
def perilune(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Perilune:
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> Run:
        monkeypatch.setattr(sys, "argv", ["perilune", "cookbook", *shlex.split(command)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfdbinary.readouterr()
        return Run(int(ended.value.code or 0), captured.out.decode(), captured.err.decode())

    return run


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.mdx").write_bytes(GOOD.encode())
    (folder / "sub" / "plain.mdx").write_bytes(PLAIN.encode())
    (folder / "sub" / "bad.mdx").write_bytes(BAD.encode())
    (folder / "note.md").write_text(TABLE)
    return folder


def test_one_page_is_printed(perilune: Perilune, pages: Path) -> None:
    run = perilune("tables docs/good.mdx")
    assert run.code == 0
    assert run.out.startswith("# page\n\n<table style=")
    assert run.out.endswith("</table>\n\nafter\n")
    assert (pages / "good.mdx").read_text() == GOOD


def test_json_reports_every_page_of_a_folder(perilune: Perilune, pages: Path) -> None:
    run = perilune("tables docs --json")
    assert run.code == 1
    files = run.files
    assert list(files) == ["good.mdx", "bad.mdx", "plain.mdx"]
    keys = ("status", "tables", "cells", "reason", "line")
    assert [files["good.mdx"][key] for key in keys] == ["converted", 1, 4, None, None]
    assert [files["plain.mdx"][key] for key in keys] == ["unchanged", 0, 0, None, None]
    assert [files["bad.mdx"][key] for key in keys] == ["refused", 0, 0, "the tag <Tab> is never closed", 7]


def test_write_changes_only_what_can_be_converted_and_a_second_run_nothing(perilune: Perilune, pages: Path) -> None:
    (pages / "good.mdx").chmod(0o640)
    run = perilune("tables docs --write")
    assert run.code == 1
    assert "docs/sub/bad.mdx:7: refused: the tag <Tab> is never closed" in run.err
    assert "3 pages: 1 converted (1 table, 4 cells), 1 unchanged, 1 refused" in run.err
    assert (pages / "sub" / "bad.mdx").read_text() == BAD
    written = (pages / "good.mdx").read_text()
    assert written.startswith("# page\n\n<table")
    assert stat.S_IMODE((pages / "good.mdx").stat().st_mode) == 0o640
    assert sorted(path.name for path in pages.iterdir()) == ["good.mdx", "note.md", "sub"]
    (pages / "sub" / "bad.mdx").unlink()
    again = perilune("tables docs --write --json")
    assert again.code == 0
    assert {file["status"] for file in again.files.values()} == {"unchanged"}
    back = perilune("tables docs/good.mdx --to markdown")
    assert back.out == GOOD


@pytest.mark.parametrize(("name", "code"), [("good", 1), ("sub/plain", 0), ("sub/bad", 1)])
def test_check_only_reports(perilune: Perilune, pages: Path, name: str, code: int) -> None:
    before = (pages / f"{name}.mdx").read_bytes()
    run = perilune(f"tables docs/{name}.mdx --check")
    assert (run.code, run.out) == (code, "")
    assert (pages / f"{name}.mdx").read_bytes() == before


def test_diff_is_a_patch(perilune: Perilune, pages: Path) -> None:
    run = perilune("tables docs/good.mdx docs/sub/plain.mdx --diff")
    assert run.code == 0
    assert run.out.startswith("--- a/docs/good.mdx\n+++ b/docs/good.mdx\n@@ ")
    assert "\n-|---|---|\n" in run.out
    assert (pages / "good.mdx").read_text() == GOOD


def test_line_ends_reach_the_terminal_and_the_disk_as_they_are(perilune: Perilune, pages: Path) -> None:
    page = pages / "good.mdx"
    page.write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert perilune("tables docs/good.mdx").out.count("\n") == perilune("tables docs/good.mdx").out.count("\r\n")
    assert perilune("tables docs/good.mdx --write").code == 0
    raw = page.read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n")


def test_a_link_to_a_page_stays_a_link(perilune: Perilune, pages: Path) -> None:
    (pages / "link.mdx").symlink_to(pages / "good.mdx")
    assert perilune("tables docs/link.mdx --write").code == 0
    assert (pages / "link.mdx").is_symlink()
    assert (pages / "good.mdx").read_text().startswith("# page\n\n<table")


HOSTILE = {
    "binary.mdx": b"\x00\x01\x02",
    "latin.mdx": "caf\u00e9\n".encode("latin-1"),
    "huge.mdx": b"x" * (MAX_PAGE_BYTES + 1),
    "utf16.mdx": GOOD.encode("utf-16"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_file_that_is_no_page_is_refused_and_the_others_go_on(perilune: Perilune, pages: Path, name: str) -> None:
    (pages / name).write_bytes(HOSTILE[name])
    run = perilune(f"tables docs/{name} docs/good.mdx --write --json")
    assert run.code == 2
    assert run.files[name]["status"] == "refused"
    assert run.files[name]["reason"]
    assert run.files["good.mdx"]["status"] == "converted"
    assert (pages / name).read_bytes() == HOSTILE[name]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tables", "Missing argument"),
        ("tables missing.mdx", "missing.mdx: The file cannot be read: no such file"),
        ("tables empty", "empty: the folder holds no .mdx page"),
        ("tables loop.mdx", "loop.mdx: The file cannot be read"),
        ("tables docs", "3 pages are too many to print"),
        ("tables docs --write --check", "--check only reports"),
        ("tables docs/good.mdx --to html", "'html' is not one of"),
        ("lint missing.mdx", "missing.mdx: The file cannot be read"),
    ],
)
def test_unusable_input_ends_in_one_sentence(perilune: Perilune, pages: Path, command: str, said: str) -> None:
    (pages.parent / "empty").mkdir()
    (pages.parent / "loop.mdx").symlink_to(pages.parent / "loop.mdx")
    run = perilune(command)
    assert run.code == 2
    assert said in run.err
    assert "Traceback" not in run.err


def test_folders_are_walked_without_their_hidden_parts_and_loops(perilune: Perilune, pages: Path) -> None:
    for name in (".git", "node_modules"):
        (pages / name).mkdir()
        (pages / name / "x.mdx").write_text(GOOD)
    (pages / "again").symlink_to(pages, target_is_directory=True)
    (pages / "dangling.mdx").symlink_to(pages / "nowhere.mdx")
    run = perilune("tables docs docs/good.mdx --json")
    assert run.code == 2
    assert sorted(run.files) == ["bad.mdx", "dangling.mdx", "good.mdx", "plain.mdx"]
    assert run.files["dangling.mdx"]["status"] == "refused"


def test_a_pipe_is_no_page(perilune: Perilune, pages: Path) -> None:
    os.mkfifo(pages / "pipe.mdx")
    run = perilune("tables docs/pipe.mdx")
    assert run.code == 2
    assert "no regular file" in run.err


@pytest.mark.parametrize(
    "text",
    [
        "{" * 20_000,
        "<a>" * 5_000,
        "[" * 50_000,
        "> " * 2_000 + "| a |",
        "- " * 2_000 + "x",
        "*a " * 20_000 + "b* " * 20_000,
        "| `" * 20_000 + "\n|" + "-|" * 20_000,
        "| " + "[x](" * 8_000 + " |\n|---|\n",
        "| " + "http://_" * 6_000 + " |\n|---|\n",
        "|a" * 30_000 + "|\n" + "|-" * 30_000 + "|\n",
        "export const x = {\n\n" * 300,
        "{/*" + "\n" * 50_000,
        "<A b={" + "{}" * 20_000,
    ],
)
def test_hostile_pages_end_soon_and_without_a_traceback(perilune: Perilune, pages: Path, text: str) -> None:
    (pages / "hostile.mdx").write_text(text)
    run = perilune("tables docs/hostile.mdx --json")
    assert run.code in (0, 1)
    assert run.files["hostile.mdx"]["status"] in ("converted", "unchanged", "refused")


LINTED = "---\ntitle: x\ndescription: y\n---\n\n| a |\n|---|\n\n`python -m sglang.launch_server`"


def test_lint_prints_findings_and_json_keeps_the_planners_contract(perilune: Perilune, pages: Path) -> None:
    (pages / "lint.mdx").write_text(LINTED)
    run = perilune("lint docs/lint.mdx")
    assert run.code == 1
    assert "docs/lint.mdx:6: error: This is a Markdown pipe table" in run.out
    assert "1 page: 3 findings, 3 errors" in run.err
    document = json.loads(perilune("lint docs/lint.mdx --json").out)
    keys = ["path", "line", *Finding("id", "error", "message").to_json()]
    assert [list(finding) for finding in document["findings"]] == [keys] * 3
    assert document["findings"][0]["where"] == {"file": "docs/lint.mdx", "line": 6}
    assert (document["fixed"], document["unusable"]) == ([], [])


def test_lint_fix_makes_the_safe_changes(perilune: Perilune, pages: Path) -> None:
    page = pages / "lint.mdx"
    page.write_text(LINTED)
    run = perilune("lint docs/lint.mdx --fix --json")
    assert run.code == 0
    assert json.loads(run.out)["fixed"] == ["docs/lint.mdx"]
    assert page.read_text().endswith("</table>\n\n`sglang serve`\n")
    assert json.loads(perilune("lint docs/lint.mdx --fix --json").out)["fixed"] == []


def test_lint_tells_what_could_not_be_read(perilune: Perilune, pages: Path) -> None:
    (pages / "binary.mdx").write_bytes(b"\x00")
    run = perilune("lint docs/sub/plain.mdx docs/binary.mdx --json")
    assert run.code == 2
    assert "NUL" in json.loads(run.out)["unusable"][0]


@pytest.mark.parametrize("form", ["mdx", "markdown"])
def test_a_built_page_is_written_and_passes_lint(perilune: Perilune, pages: Path, form: str) -> None:
    name = "k3.mdx" if form == "mdx" else "k3.md"
    assert perilune(f"page kimi-k3 --format {form} --isl 8192 --osl 1024 -o {name}").code == 0
    run = perilune(f"lint {name} --json")
    assert (run.code, json.loads(run.out)["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("page deepseek", "'deepseek' is not 'kimi-k3'"),
        ("page kimi-k3 --isl 5", "One length alone"),
        ("page kimi-k3 --hardware b400", "Unknown platform"),
        ("page kimi-k3 -o no/such/folder/k3.mdx", "cannot be written: no such file"),
    ],
)
def test_a_page_that_cannot_be_built_ends_in_one_sentence(perilune: Perilune, command: str, said: str) -> None:
    run = perilune(command)
    assert run.code == 2
    assert said in run.err
    assert "Traceback" not in run.err
