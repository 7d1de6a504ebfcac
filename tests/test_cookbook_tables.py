"""Pipe tables to JSX tables and back: what is found, what is written, what stays, what is refused."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from perilune.cookbook.page import Dialect, Page
from perilune.cookbook.syntax.jsx import MdxError, scan_braces, scan_tag
from perilune.cookbook.syntax.pipes import split_row
from perilune.cookbook.tables.convert import Target, convert
from perilune.cookbook.tables.widths import column_widths

PAGES = Path(__file__).parent / "mdx" / "pages"
TABLE = "| a | b |\n|---|---|\n| c | d |\n"


def jsx(text: str, dialect: Dialect = Dialect.MDX) -> str:
    done = convert(Page(text, dialect), "jsx")
    assert not done.refusals, done.refusals
    return done.page.text


def cell(source: str, dialect: Dialect = Dialect.MDX) -> str:
    """The JSX of one body cell."""
    text = jsx(f"| h | x |\n|---|---|\n| {source} | x |\n", dialect)
    line = next(line for line in text.splitlines() if "<td" in line)
    return line.partition(">")[2].removesuffix("</td>")


def refusal(text: str, target: Target = "jsx", dialect: Dialect = Dialect.MDX) -> tuple[int, str]:
    page = Page(text, dialect)
    done = convert(page, target)
    assert done.status == "refused"
    assert done.page is page
    return done.refusals[0].line, done.refusals[0].message


def test_a_table_is_written_in_the_cookbooks_style() -> None:
    assert jsx("| Variant | Params |\n|:---|---:|\n| **[Flash](https://x.y/f)** | 13B |\n") == (
        '<table style={{width: "100%", borderCollapse: "collapse", tableLayout: "fixed"}}>\n'
        "  <colgroup>\n"
        '    <col style={{width: "50%"}} />\n'
        '    <col style={{width: "50%"}} />\n'
        "  </colgroup>\n"
        "  <thead>\n"
        '    <tr style={{borderBottom: "2px solid #d55816"}}>\n'
        '      <th style={{textAlign: "left", padding: "10px 12px", fontWeight: 700, whiteSpace: "nowrap", '
        'backgroundColor: "rgba(255,255,255,0.02)"}}>Variant</th>\n'
        '      <th style={{textAlign: "right", padding: "10px 12px", fontWeight: 700, whiteSpace: "nowrap", '
        'backgroundColor: "rgba(255,255,255,0.05)"}}>Params</th>\n'
        "    </tr>\n"
        "  </thead>\n"
        "  <tbody>\n"
        "    <tr>\n"
        '      <td style={{padding: "9px 12px", textAlign: "left", fontWeight: 500, '
        'backgroundColor: "rgba(255,255,255,0.02)"}}><strong><a href="https://x.y/f">Flash</a></strong></td>\n'
        '      <td style={{padding: "9px 12px", textAlign: "right", '
        'backgroundColor: "rgba(255,255,255,0.05)"}}>13B</td>\n'
        "    </tr>\n"
        "  </tbody>\n"
        "</table>\n"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ""),
        ("plain, ×8 – text", "plain, ×8 – text"),
        ("`--tp 8`", "<code>--tp 8</code>"),
        (r"`a\|b`", "<code>a|b</code>"),
        (r"a \| b", "a | b"),
        ("`{x}` `<y>`", "<code>&#123;x&#125;</code>{\" \"}<code>&lt;y></code>"),
        ("`` ` ``", "<code>&#96;</code>"),
        ("`a*b*c`", "<code>a&#42;b&#42;c</code>"),
        ("`extra_buffer_lazy`", "<code>extra_buffer_lazy</code>"),
        ("~1.8× of ~16K", "~1.8× of ~16K"),
        ("**a *b* c**", "<strong>a <em>b</em> c</strong>"),
        ("~~gone~~", "<del>gone</del>"),
        (r"\{a\} \<b> \*c\*", "&#123;a&#125; &lt;b> *c&#42;"),
        ("&lt;b&gt; &amp;amp; &#123;", "&lt;b> &amp;amp; &#123;"),
        ("[t](u 'v \"w\"')", '<a href="u" title="v &quot;w&quot;">t</a>'),
        ("[é](/é?a=1&b=2)", '<a href="/%C3%A9?a=1&amp;b=2">é</a>'),
        ("![a *b*](c.png)", '<img src="c.png" alt="a b" />'),
        ("https://x.y/z", '<a href="https://x.y/z">{"https://x.y/z"}</a>'),
        ("me@x.yz", '<a href="mailto:me@x.yz">{"me@x.yz"}</a>'),
        ("`http://localhost:30000`", '<code>{"http://localhost:30000"}</code>'),
        ("a<br/>b", "a<br/>b"),
        ('<Icon name="x" /> {1 + 1}', '<Icon name="x" />{" "}{1 + 1}'),
        ("<b>*x*</b>", "<b><em>x</em></b>"),
        ("a < b", "a &lt; b"),
        ("AT&T R&D", "AT&T R&D"),
        (r"C:\dir", r"C:\dir"),
        (r"a\\*b*", "a&#92;<em>b</em>"),
        ("list[str]", "list[str]"),
        ("a&nbsp;b", "a&nbsp;b"),
    ],
)  # fmt: skip
def test_cell_content_is_carried_over(source: str, expected: str) -> None:
    assert cell(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{hw} <b>x</b><br>", "&#123;hw&#125; <b>x</b><br />"),
        ("<https://x.y>", '<a href="https://x.y">{"https://x.y"}</a>'),
        ("a <5 ms", "a &lt;5 ms"),
    ],
)
def test_plain_markdown_has_no_expressions(source: str, expected: str) -> None:
    assert cell(source, Dialect.MARKDOWN) == expected


def test_a_bracket_is_kept_from_becoming_a_link_where_targets_are_defined() -> None:
    text = jsx(r"| a |" "\n|---|\n" r"| \[ref] and [ref] |" "\n\n[ref]: /target\n")
    assert '>&#91;ref] and <a href="/target">ref</a><' in text


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("| a | b |", ["a", "b"]),
        ("a | b", ["a", "b"]),
        ("| a", ["a"]),
        ("||a|", ["", "a"]),
        ("| a || ", ["a", ""]),
        (r"| a \| b | c |", [r"a \| b", "c"]),
        (r"| a \\| b |", [r"a \\", "b"]),
        (r"| `a|b` |", ["`a", "b`"]),
        ("|", []),
    ],
)
def test_rows_split_as_github_splits_them(row: str, cells: list[str]) -> None:
    assert split_row(row) == cells


@pytest.mark.parametrize(
    ("table", "count"),
    [
        ("| a |\n|---|\n", 1),
        ("a\n:-\nb\n", 2),
        ("| a | b |\n|---|---|\n| c |\n", 4),
        ("a | b\n--|--\n1 | 2\n3 | 4\n", 6),
        ("| a | b |\n| - | - |\nloose text\n", 4),
    ],
)
def test_cells_are_counted_as_shown(table: str, count: int) -> None:
    done = convert(Page(table), "jsx")
    assert (done.status, done.tables, done.cells) == ("converted", 1, count)


def test_cells_beyond_the_header_are_told() -> None:
    done = convert(Page("| a |\n|---|\n| b | c | |\n"), "jsx")
    assert done.status == "converted"
    assert [(note.line, "'c'" in note.message) for note in done.notes] == [(3, True)]


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{TABLE}```\n",
        f"~~~md\n{TABLE}~~~\n",
        f"{{/*\n{TABLE}\n{TABLE}*/}}\n",
        f"---\ntitle: x\ntable: |\n  {TABLE.replace(chr(10), chr(10) + '  ')}\n---\n",
        f"<Tabs\n  items={{`\n{TABLE}`}}\n/>\n",
        f"export const table = `\n{TABLE}`\n",
        "a | b\n\n---|---\n",
        "| a | b |\n|---|\n",
        "| a | b |\n| - | x |\n",
        "a | b\n- | -\n",
        "",
        "\n",
        "no table\n",
    ],
)
def test_what_only_looks_like_a_table_is_left_alone(text: str) -> None:
    done = convert(Page(text), "jsx")
    assert (done.status, done.page.text) == ("unchanged", text)


@pytest.mark.parametrize(
    ("before", "prefix", "after"),
    [
        ("<Tabs>\n  <Tab title=\"x\">\n", "    ", "  </Tab>\n</Tabs>\n"),
        ("<Accordion>\n\n", "", "\n</Accordion>\n"),
        ("<Note>\ntext\n", "", "</Note>\n"),
        ("> quote\n>\n", "> ", "\nafter\n"),
        ("- item\n\n", "  ", "\n- next\n"),
        ("1. item\n\n", "\t", "\ntext\n"),
        ("> - item\n>\n", ">   ", ">\n> more\n"),
        ("[^1]\n\n[^1]: note\n\n", "    ", "\n"),
        ("text\n", "", "# heading\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_only_the_table_changes(before: str, prefix: str, after: str, ending: str) -> None:
    table = "".join(prefix + line + "\n" for line in TABLE.splitlines())
    page = (before + table + after).replace("\n", ending)
    done = jsx(page)
    assert done.startswith(before.replace("\n", ending) + prefix + "<table ")
    assert done.endswith(f"{prefix}</table>{ending}" + after.replace("\n", ending))
    middle = done[len(before.replace("\n", ending)) : len(done) - len(after.replace("\n", ending))]
    assert all(line.startswith(prefix) for line in middle.split(ending)[:-1])
    assert convert(Page(done), "jsx").status == "unchanged"


@pytest.mark.parametrize("text", ["- | a | b |\n  |---|---|\n  | c | d |", "> 1. | a | b |\n>    |---|---|"])
def test_a_table_may_open_a_list_item_and_end_the_page(text: str) -> None:
    done = jsx(text)
    first, *rest = done.split("\n")
    indent = text.splitlines()[1].partition("|")[0]
    assert first == text.partition("|")[0] + first[len(indent) :]
    assert all(line.startswith(indent) for line in rest)
    assert done.endswith("</table>")


def test_a_byte_order_mark_is_kept() -> None:
    page = Page.decode(b"\xef\xbb\xbf" + TABLE.encode(), Dialect.MDX, "x.mdx")
    assert convert(page, "jsx").page.encode().startswith(b"\xef\xbb\xbf<table")


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md*")), ids=lambda path: path.name)
def test_real_pages_keep_every_line_outside_their_tables(path: Path) -> None:
    page = Page.decode(path.read_bytes(), Dialect.of(path.name), path.name)
    done = convert(page, "jsx")
    matcher = difflib.SequenceMatcher(None, page.lines, done.page.lines, autojunk=False)
    changed = [page.lines[start:end] for kind, start, end, _, _ in matcher.get_opcodes() if kind != "equal"]
    assert all(line.startswith("|") for lines in changed for line in lines)
    assert sum(map(len, changed)) == sum(line.startswith("|") for line in page.lines)
    assert convert(done.page, "jsx").status == "unchanged"


def test_the_eight_tables_of_kimi_k3() -> None:
    page = Page.decode((PAGES / "k3_tables.md").read_bytes(), Dialect.MARKDOWN, "k3_tables.md")
    done = convert(page, "jsx")
    assert (done.status, done.tables, done.cells, done.notes) == ("converted", 8, 116, ())
    back = convert(done.page, "markdown")
    assert (back.status, back.tables, back.cells) == ("converted", 8, 116)
    assert back.page.text == page.text


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("text\n\n<Tab>\ntext\n", 3, "<Tab> is never closed"),
        ("<Tab>\n\n</Note>\n", 3, "</Note> stands where <Tab>"),
        ("text\n</Tab>\n", 2, "</Tab> closes no tag"),
        ("> <Tab>\n\n</Tab>\n", 1, "<Tab> is never closed"),
        ("<Tab>\ntext</Tab>\n", 2, "</Tab> closes no tag"),
        ("some {text\n\nmore\n", 1, "`{` opens"),
        ("{a b}\n", 1, "`{` opens"),
        ("x\n\n<!-- note -->\n", 3, "{/* ... */}"),
        ("see <https://x.y>\n", 1, "unexpected"),
        ("a <5 ms\n", 1, "unexpected `5`"),
        ("**a <b>c** d</b>\n", 1, "<b> is not closed"),
        ("| a |\n|---|\n| <b>c |\n", 3, "<b> is not closed"),
        ("| a |\n|---|\n| c | </b> |\n", 3, "</b> closes no tag"),
        ("import x\n", 1, "valid JavaScript"),
        ("---\ntitle: x\n", 1, "frontmatter"),
        ('<Tab title="x>\n', 1, "never closed"),
        ("| a |\n|---|\n| <ul><li>x</li></ul> |\n", 3, "<ul>"),
        ("| a |\n|---|\n| ok |\n\n| b |\n|---|\n| x<p>y</p> |\n", 7, "<p>"),
        ("1. one\na | b\n    |---|---|\n", 2, "outside the container"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    found, message = refusal(text)
    assert found == line
    assert said in message


@pytest.mark.parametrize(
    "html", ["<!-- x -->", '<span class="x">y</span>', "<font color=red>x</font>", "<div>x</div>", "<b>x"]
)
def test_html_of_plain_markdown_that_jsx_reads_otherwise_is_refused(html: str) -> None:
    line, _ = refusal(f"| a |\n|---|\n| {html} |\n", dialect=Dialect.MARKDOWN)
    assert line == 3


@pytest.mark.parametrize(
    ("table", "line", "said"),
    [
        ("<table>\n<tr><td>a</td></tr>\n</table>\n", 1, "no header row"),
        ("<table>\n<tr><th>a</th></tr>\n<tr><td colSpan={2}>b</td></tr>\n</table>\n", 3, "colSpan"),
        ("<table>\n<tr><th>a</th></tr>\n<tr><td>b</td><td>c</td></tr>\n</table>\n", 3, "2 cells"),
        ("<table>\n<tr><th>a</th></tr>\n<tr><td><ul><li>b</li></ul></td></tr>\n</table>\n", 3, "<ul>"),
        ("<table>\n<tr><th>a</th></tr>\n<tr>\n<td>\n- b\n\n</td>\n</tr>\n</table>\n", 4, "bullet list"),
        ("<table>\n<tr><th>a</th></tr>\n{rows}\n</table>\n", 1, "more than rows"),
        ('<table id="x">\n<tr><th>a</th></tr>\n</table>\n', 1, "`id`"),
        ("<table>\n<caption>c</caption>\n<tr><th>a</th></tr>\n</table>\n", 2, "<caption>"),
        ('<table>\n<tr><th>{a || "b"}</th></tr>\n</table>\n', 1, "cannot be written"),
        ("x <table><tr><th>a</th></tr></table>\n", 1, "shares its lines"),
    ],
)
def test_jsx_tables_that_no_pipe_table_holds_are_refused(table: str, line: int, said: str) -> None:
    found, message = refusal(table, "markdown")
    assert found == line
    assert said in message


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("<code>a|b</code>", r"`a\|b`"),
        ("`a_b` **c**", "`a_b` **c**"),
        ("&#123;x&#125; *y&#42;", r"\{x} *y\*"),
        ('<a href="https://x.y">{"https://x.y"}</a>', "https://x.y"),
        ('<code>{"http://a:1"}</code>', "`http://a:1`"),
        ("a<strong>(b)</strong>c", "a<strong>(b)</strong>c"),
        ("a<br />b", "a<br />b"),
        ('<span style={{color: "red"}}>x</span>', '<span style={{color: "red"}}>x</span>'),
        ("x {/* note */} y", "x {/* note */} y"),
    ],
)
def test_jsx_cells_become_markdown(inner: str, expected: str) -> None:
    page = f"<table>\n<tr><th>h</th><th>k</th></tr>\n<tr><td>{inner}</td><td></td></tr>\n</table>\nafter\n"
    done = convert(Page(page), "markdown")
    assert done.page.text == f"| h | k |\n|---|---|\n| {expected} | |\n\nafter\n"


def test_alignment_survives_the_way_there_and_back() -> None:
    text = "| a | b | c | d |\n|---|:---|:---:|---:|\n| 1 | 2 | 3 | 4 |\n"
    assert convert(Page(jsx(text)), "markdown").page.text == text


@pytest.mark.parametrize(
    ("columns", "widths"),
    [
        ([["a"]], [100]),
        ([["a"], ["b"]], [50, 50]),
        ([["GPUs", "16"], ["Notes", "x " * 100]], [15, 85]),
        ([["a"]] * 9, [12, 11, 11, 11, 11, 11, 11, 11, 11]),
        ([["a"]] * 101, [0] * 101),
    ],
)
def test_widths_suit_the_content(columns: list[list[str]], widths: list[int]) -> None:
    found = column_widths(columns)
    assert found == widths
    assert sum(found) in (0, 100)


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("{1}", 3),
        ('{"}"}', 5),
        ("{{a: {b: 1}}}", 13),
        ("{/* } */}", 9),
        ("{`${`}`}`}", 10),
        ("{x => <b>it's {x}</b>} it's", 22),
        ("{/}/.test(x)}", 13),
        ("{}", 2),
        ("{// x}", 6),
    ],
)
def test_expressions_end_where_their_javascript_does(source: str, end: int) -> None:
    assert scan_braces(source, 0, len(source)).end == end


@pytest.mark.parametrize(
    ("source", "kind", "attributes"),
    [
        ("<a>", "open", []),
        ("</a >", "close", []),
        ("<a/>", "self", []),
        ("<>", "open", []),
        ("<a.b-c:d />", None, []),
        ("<a.b.c />", "self", []),
        ("<svg:path d='M0 0' />", "self", [("d", "text", "M0 0")]),
        ('<a b c = "d" {...e} f={{g: ">"}}>', "open",
         [("b", "flag", ""), ("c", "text", "d"), ("", "spread", "...e"), ("f", "expression", '{g: ">"}')]),
        ("<a b='>'>", "open", [("b", "text", ">")]),
        ("<a\n  b\n/>", "self", [("b", "flag", "")]),
        ("< a>", "text", []),
        ("<1>", None, []),
        ("<a b=c>", None, []),
        ("<a {b}>", None, []),
        ("<a b={}>", None, []),
        ("</a b>", None, []),
        ("<a", None, []),
    ],
)  # fmt: skip
def test_tags_are_read_by_the_grammar_of_mdx(
    source: str, kind: str | None, attributes: list[tuple[str, str, str]]
) -> None:
    if kind is None:
        with pytest.raises(MdxError):
            scan_tag(source, 0, len(source))
        return
    tag = scan_tag(source, 0, len(source))
    if kind == "text":
        assert tag is None
        return
    assert tag is not None
    assert (tag.kind, tag.end) == (kind, len(source))
    assert [(a.name, a.kind, a.value) for a in tag.attributes] == attributes
