"""The page that is built from the facts: complete, compiling, at parity, and without a finding."""

from __future__ import annotations

import re

import pytest

from mdx.judge import render
from perilune.cookbook.build.cells import Lengths
from perilune.cookbook.build.kimi_k3 import Format, build
from perilune.cookbook.build.markup import words
from perilune.cookbook.lint.parity import cell_of
from perilune.cookbook.lint.run import lint
from perilune.cookbook.lint.shell import commands
from perilune.cookbook.lint.source import read
from perilune.cookbook.page import Dialect, Page
from perilune.cookbook.tables.convert import convert
from perilune.errors import Refused, UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.recipes import all_recipes
from perilune.plan.resolve import resolve

DIALECTS: dict[Format, Dialect] = {"mdx": Dialect.MDX, "markdown": Dialect.MARKDOWN}


@pytest.fixture(scope="module")
def mdx() -> str:
    return build("mdx", lengths=Lengths(8192, 1024))


@pytest.mark.parametrize("form", ["mdx", "markdown"])
@pytest.mark.parametrize("lengths", [Lengths(), Lengths(8192, 1024)])
def test_a_built_page_has_no_finding(form: Format, lengths: Lengths) -> None:
    assert lint(Page(build(form, lengths=lengths), DIALECTS[form])) == []


def test_both_formats_render_the_same(mdx: str) -> None:
    pipes = convert(Page(mdx), "markdown")
    assert not pipes.refusals
    written, back = render([mdx, pipes.page.text])
    assert "error" not in written
    assert written == back
    assert len(written["tables"]) == 10  # the page's eight, the matrix, the calculator's other lengths
    assert all(len({len(row) for row in table}) == 1 for table in written["tables"])


def test_every_cell_has_its_command(mdx: str) -> None:
    headings = re.findall(r"^#### ", mdx, re.MULTILINE)
    assert len(headings) == len(all_recipes())
    serving = [command for command in commands(read(Page(mdx))) if command.serves]
    assert len(serving) == len(all_recipes())
    held = [command for command in serving if command.server and cell_of(command, command.server)]
    assert len(held) >= len(all_recipes()) - 10  # prefill's `default` names no strategy


def test_commands_whose_values_are_published_are_accepted_by_the_engine(mdx: str) -> None:
    refused = []
    for command in commands(read(Page(mdx))):
        if not command.serves or command.fence.language != "bash" or command.server is None:
            continue
        name = next(line for line in command.fence.context.split("\n")[::-1] if line in LABELS)
        if not resolve(command.server, platform(LABELS[name])).accepted:
            refused.append(command.text)
    assert refused == []


LABELS = {platform(recipe.hardware).label: recipe.hardware for recipe in all_recipes()}


def test_a_changed_command_is_no_longer_at_parity(mdx: str) -> None:
    found = lint(Page(mdx.replace("--dcp-size 8", "--dcp-size 4", 1)))
    assert [finding.finding.id for finding in found] == ["parity"]


def test_the_calculator_shows_the_numbers_of_the_workload(mdx: str) -> None:
    assert "ratio = 5 x 56,171,520 / (9,216 x 4,856) = 6.2757, written 6.28" in mdx
    assert "--mamba-full-memory-ratio 6.28" in mdx
    other = build("markdown", platform="h200", strategy="balanced", lengths=Lengths(1000, 1000))
    assert "For H200, Balanced, with requests of 2,000 tokens:" in other


@pytest.mark.parametrize(("hardware", "strategy"), [("b400", "balanced"), ("a3", "low-latency"), ("b300", "fast")])
def test_a_cell_that_does_not_exist_is_refused(hardware: str, strategy: str) -> None:
    with pytest.raises((Refused, UnusableInput)):
        build("mdx", platform=hardware, strategy=strategy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("set --tp-size 8.", "set `--tp-size` 8."),
        ("keep A_B=1.", "keep `A_B=1`."),
        ("f_b <node-rank> {x} a*b", r"f\_b `<node-rank>` \{x\} a\*b"),
    ],
)
def test_sentences_of_the_catalog_become_markdown(text: str, expected: str) -> None:
    assert words(text) == expected
