"""The real MDX compiler judges: every page is compiled and rendered before and after, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdx.judge import render
from perilune.cookbook.page import Dialect, Page
from perilune.cookbook.tables.convert import Converted, Target, convert

PAGES = sorted((Path(__file__).parent / "mdx" / "pages").glob("*.md*"))

WORDS = ["a", "b c", "é", "×8", "🚀", "“q”", "x_y_z", "2*3", "~3K", "R&D", "C:\\dir", "list[str]", "$5", "100%", "–"]
MARKS = [
    "*",
    "**",
    "***",
    "_",
    "__",
    "~",
    "~~",
    "~~~",
    "`",
    "``",
    "[",
    "]",
    "](u)",
    "![",
    "(",
    ")",
    "!",
    ":",
    "\\",
    "\\\\",
]
ESCAPES = [
    "\\|",
    "\\*",
    "\\`",
    "\\<",
    "\\{",
    "&amp;",
    "&lt;",
    "&#123;",
    "&#x7c;",
    "&nbsp;",
    "&#10;",
    "&#9;",
    "&",
    "&copy",
]
SPANS = ["**b**", "*i*", "***bi***", "~~s~~", "`c`", "`a\\|b`", "`{x}`", "`<y>`", "`` ` ``", "` `", "` d `", "`a *b*`"]
LINKS = [
    "[l](u)", '[*l*](<a b> "t")', "[https://x.y](z)", "![i](j)", "https://x.y/z", "http://localhost:30000", "www.x.y",
    "me@x.yz", "mailto:me@x.yz", "xmpp:a@b.c/d", "`https://x.y`", "[ref]", "[l][ref]", "[^note]", "https://x.y/*a*_b_",
]  # fmt: skip
JSX = [
    "<br/>", "<b>x</b>", '<a href="u">*v*</a>', "<>f</>", "<kbd>https://k.l</kbd>", '<C d={{e: "}"}} f>g</C>', "{1}",
    '{"}"}', "{/* c */}", '{" "}', "{[1, 2].length}", "<i title='>'/>", "{`t`}",
]  # fmt: skip
BROKEN = ["<", "{", "<b>", "</b>", "{a b}", "<https://x.y>", "<!-- c -->", "<5"]


def pieces(*kinds: list[str], glue: list[str]) -> st.SearchStrategy[str]:
    piece = st.one_of(*(st.sampled_from(kind) for kind in kinds))
    return st.lists(st.tuples(piece, st.sampled_from(glue)).map("".join), max_size=6).map("".join)


CELLS = st.one_of(
    pieces(WORDS, MARKS, ESCAPES, glue=["", " "]),
    pieces(WORDS, SPANS, LINKS, JSX, ESCAPES, glue=["", " ", " "]),
    pieces(WORDS, MARKS, SPANS, LINKS, JSX, glue=[""]),
)


@st.composite
def pages(draw: st.DrawFn) -> str:
    """A page with one table of hostile cells, in one of several containers."""
    columns = draw(st.integers(1, 3))
    cells = st.one_of(CELLS, CELLS, CELLS, st.sampled_from(BROKEN)) if draw(st.integers(0, 5)) == 0 else CELLS
    rows = draw(st.lists(st.lists(cells, max_size=columns + 1), min_size=1, max_size=3))
    delimiters = draw(st.lists(st.sampled_from(["---", ":--", ":-:", "--:"]), min_size=columns, max_size=columns))
    header = [draw(cells) for _ in range(columns)]
    lines = ["| " + " | ".join(row) + " |" for row in [header, delimiters, *rows]]
    before, prefix, after = draw(
        st.sampled_from(
            [
                ("Before\n\n", "", "\nAfter\n"),
                ("<Tabs>\n\n", "  ", "\n</Tabs>\n"),
                ("<Note>\n", "    ", "</Note>\n"),
                ("> q\n>\n", "> ", "\nAfter\n"),
                ("- i\n\n", "  ", "\nAfter\n"),
            ]
        )
    )
    definitions = draw(
        st.sampled_from(["", '\n[ref]: /r "t"\n', "\n[^note]: text\n", "\n[ref]: /r\n[str]: /s\n\n[^note]: n\n"])
    )
    return before + "".join(prefix + line + "\n" for line in lines) + after + definitions


def judge(sources: list[str], target: Target = "jsx") -> list[Converted]:
    """Convert pages and hold each against its rendering: refused if and only if it does not compile."""
    done = [convert(Page(source), target) for source in sources]
    verdicts = render(
        [page for source, result in zip(sources, done, strict=True) for page in (source, result.page.text)]
    )
    for source, result, before, after in zip(sources, done, verdicts[::2], verdicts[1::2], strict=True):
        if "error" in before:
            assert result.status == "refused" or not syntactic(before["error"]), (before, source)
        else:
            assert not result.refusals, (result.refusals, source)
            same(before, after, source)
    return done


def syntactic(error: str) -> bool:
    return error.startswith(("Expected", "Unexpected", "Could not parse"))


def same(before: dict[str, Any], after: dict[str, Any], source: str) -> None:
    assert "error" not in after, (after, source)
    assert after["tables"] == before["tables"], source
    assert after["rest"] == before["rest"], source


BATCH = settings(
    max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)  # fmt: skip


@BATCH
@given(st.lists(pages(), min_size=40, max_size=50))
def test_generated_tables_render_the_same_as_jsx(sources: list[str]) -> None:
    judge(sources)


@BATCH
@given(st.lists(pages(), min_size=40, max_size=50))
def test_generated_tables_render_the_same_there_and_back(sources: list[str]) -> None:
    there = [(source, convert(Page(source), "jsx")) for source in sources]
    kept = [(source, done.page.text) for source, done in there if not done.refusals]
    back = [convert(Page(text), "markdown") for _, text in kept]
    verdicts = render([page for (source, _), done in zip(kept, back, strict=True) for page in (source, done.page.text)])
    for (source, _), done, before, after in zip(kept, back, verdicts[::2], verdicts[1::2], strict=True):
        if done.refusals:
            assert "cannot be written in a pipe table" in done.refusals[0].message, (done.refusals, source)
        elif "error" not in before:
            same(before, after, source)
            assert after["tables"] == before["tables"]


def test_real_pages_render_the_same() -> None:
    sources = [Page.decode(path.read_bytes(), Dialect.of(path.name), path.name) for path in PAGES]
    there = [convert(page, "jsx") for page in sources]
    back = [convert(done.page, "markdown") for done in there]
    assert [done.cells for done in there] == [0, 87, 58, 110, 235, 116]
    assert not any(done.refusals for done in there + back)
    texts = [
        text for page, a, b in zip(sources, there, back, strict=True) for text in (page.text, a.page.text, b.page.text)
    ]
    verdicts = render(texts)
    for number, page in enumerate(sources):
        before, jsx, pipes = verdicts[3 * number : 3 * number + 3]
        same(before, jsx, page.text)
        same(before, pipes, page.text)


TABLE = "| a | b |\n|---|---|\n| c | d |\n"
BLOCKS = [
    f"text\n{TABLE}",
    f"{TABLE}# heading\n",
    f"{TABLE}> quote\n",
    f"{TABLE}- item\n",
    f"{TABLE}***\n",
    f"{TABLE}```\ncode\n```\n",
    f"{TABLE}loose row\nanother | one\n\nafter\n",
    f"{TABLE}<br />\n",
    f"{TABLE}{{1}}\n",
    f"{TABLE}\n{TABLE}",
    f"<A><B>\n{TABLE}</B></A>\n",
    f"<A\n  b={{{{c: 1}}}}\n  d\n>\n{TABLE}\n</A>\n",
    f"<A>\n  <B>\n\n  text\n\n      {TABLE.replace(chr(10), chr(10) + '      ')}\n  </B>\n</A>\n",
    f"{{/* {TABLE} */}}\n\n{TABLE}",
    f"{{\n1 + 1\n}}\n{TABLE}",
    f"import x from 'y'\nexport const z = {{\n\na: 1}}\n\n{TABLE}",
    f"```md\n{TABLE}```\n\n~~~\n{TABLE}\n",
    f"    {TABLE.replace(chr(10), chr(10) + '    ')}",
    "> | a |\n> |---|\n> | b |\nlazy\n",
    "> | a |\n|---|\n",
    "- | a |\n  |---|\n  | b |\n\n  text\n- next\n",
    "1. x\n\n   > | a |\n   > |---|\n   > | b |\n",
    "* | a |\n  |---|\n\n      | b |\n      |---|\n",
    "2. two\n    |---|\n",
    "text\n2. two\n    |---|\n",
    "a\n===\n| b |\n|---|\n",
    "| b |\n===\n|---|\n",
    "a | b\n--|--\n---\n",
    "[ref]: /u\n| a |\n|---|\n| [ref] |\n",
    "text[^1]\n\n[^1]: note\n\n    | a |\n    |---|\n    | b |\n\nafter\n",
    "# h | i\n|---|---|\n",
    "\\| a |\n|---|\n",
    "| a\n|-\n| b\n",
    "|\n|---|\n",
    "||\n|-|\n|x|\n",
    "<Note>x</Note>\n| a |\n|---|\n",
    "a <b>\nc</b>\n| a |\n|---|\n",
    "---\ntitle: x\n---\n| a |\n|---|\n",
    "\ufeff| a |\n|---|\n",
    "| a |\r\n|---|\r\n| b |\r\n\r\ntext\r\n",
    "| a |\r|---|\r| b |\r\rtext\r",
]


def test_tables_among_other_blocks_render_the_same() -> None:
    done = judge(BLOCKS)
    assert sum(result.tables for result in done) > 30


HTML_TABLES = [
    "<table><tr><th>a</th></tr><tr><td>b</td></tr></table>\n",
    "<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n"
    "<td>**c** `d|e`</td>\n<td align=\"right\">f</td>\n</tr>\n</tbody>\n</table>\ntext\n",
    "text\n\n- <table>\n  <tr><th>a</th><th>b|c</th></tr>\n  <tr><td></td><td>{/* d */}e</td></tr>\n"
    "  </table>\n- next\n",
    "> <table>\n> {/* rows */}\n> <tr><th>`http://a`</th></tr>\n> </table>\n> text\n",
    "<A>\n  <table>\n    <tr><th>https://a.b</th></tr>\n    <tr><td><b>c</b> <i>d</i></td></tr>\n  </table>\n</A>\n",
    "<table>\n<tr><th><code>a</code> <code>{\"{|}\"}</code></th></tr>\n"
    "<tr><td>&#42;x&#42; &lt;y></td></tr>\n</table>\n",
]  # fmt: skip


def test_jsx_tables_render_the_same_as_pipes() -> None:
    done = judge(HTML_TABLES, "markdown")
    assert [result.status for result in done] == ["converted"] * len(HTML_TABLES)


@pytest.mark.parametrize("target", ["jsx", "markdown"])
def test_no_page_of_random_lines_breaks_the_converter(target: Target) -> None:
    lines = "\n".join(BLOCKS + HTML_TABLES).splitlines()

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(st.lists(st.sampled_from(lines), max_size=12))
    def check(chosen: list[str]) -> None:
        page = Page("\n".join(chosen))
        done = convert(page, target)
        assert (done.page is page) == (done.status == "refused") or done.status == "unchanged"
        assert target == "markdown" or done.refusals or convert(done.page, target).status == "unchanged"

    check()
