"""A table written as JSX, in the style of the SGLang cookbook.

Inside a cell MDX still reads Markdown, so text is written so that neither MDX nor Markdown finds
markup in it: character references where one character is the trouble, a string expression where a
renderer would make a link of a written-out address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from perilune.cookbook.syntax.inline import flanks
from perilune.cookbook.syntax.nodes import (
    Break,
    Code,
    Element,
    Image,
    Link,
    Mark,
    Node,
    Text,
    Verbatim,
    plain_text,
)
from perilune.cookbook.tables.model import Table
from perilune.cookbook.tables.widths import column_widths

SHADES = ("rgba(255,255,255,0.02)", "rgba(255,255,255,0.05)")
PAGE_CHARS = 110

ADDRESS = re.compile(
    r"(?:https?://|www\.)\S*|(?:xmpp:|mailto:)?[\w+.\-]+@[\w\-]+\.[\w.\-]*(?:/[\w\-/.]*)?", re.IGNORECASE
)
_SPECIAL = re.compile(r"[*_~]+|[`<>{}\[\]\\&\xa0\n\r\t]")
_SUSPECT = re.compile(r"[*_~`<>{}\[\]\\&\xa0\n\r\t@]|://|www\.|\A \Z", re.IGNORECASE)
_REFERENCE = re.compile(r"#?[A-Za-z0-9]+;")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def write(table: Table, *, definitions: bool) -> list[str]:
    """Return the lines of the JSX table, without line ends or outer indentation.

    `definitions` says that the page defines link targets, so that a bracket alone may be a link.
    """
    columns = [[plain_text(row[column]) for row in table.rows] for column in range(len(table.aligns))]
    widths = column_widths(columns)
    lines = ['<table style={{width: "100%", borderCollapse: "collapse", tableLayout: "fixed"}}>']
    if all(widths):
        lines += [
            "  <colgroup>",
            *(f'    <col style={{{{width: "{width}%"}}}} />' for width in widths),
            "  </colgroup>",
        ]
    lines += ["  <thead>", '    <tr style={{borderBottom: "2px solid #d55816"}}>']
    for column, cell in enumerate(table.rows[0]):
        fits = len(columns[column][0]) <= widths[column] * PAGE_CHARS / 100
        style = _header_style(table.aligns[column], column, fits)
        lines.append(f"      <th style={{{{{style}}}}}>{write_cell(cell, definitions)}</th>")
    lines += ["    </tr>", "  </thead>"]
    if len(table.rows) > 1:
        lines.append("  <tbody>")
        for row in table.rows[1:]:
            lines.append("    <tr>")
            for column, cell in enumerate(row):
                style = _body_style(table.aligns[column], column)
                lines.append(f"      <td style={{{{{style}}}}}>{write_cell(cell, definitions)}</td>")
            lines.append("    </tr>")
        lines.append("  </tbody>")
    lines.append("</table>")
    return lines


def _header_style(align: str, column: int, one_line: bool) -> str:
    nowrap = 'whiteSpace: "nowrap", ' if one_line else ""
    return (
        f'textAlign: "{align or "left"}", padding: "10px 12px", fontWeight: 700, '
        f'{nowrap}backgroundColor: "{SHADES[column % 2]}"'
    )


def _body_style(align: str, column: int) -> str:
    aligned = f'textAlign: "{align}", ' if align else ""
    weight = "fontWeight: 500, " if column == 0 else ""
    return f'padding: "9px 12px", {aligned}{weight}backgroundColor: "{SHADES[column % 2]}"'


def write_cell(cell: tuple[Node, ...], definitions: bool) -> str:
    """Return a cell's content as JSX that MDX reads back as the same content."""
    return "".join(_write(node, definitions) for node in cell)


def _write(node: Node, definitions: bool) -> str:
    match node:
        case Text(value):
            return write_text(value, definitions)
        case Code(value):
            return f"<code>{write_text(value, definitions)}</code>"
        case Mark(kind, children):
            return f"<{kind}>{write_cell(children, definitions)}</{kind}>"
        case Link(href, title, children):
            return f'<a href="{attribute(href)}"{_title(title)}>{write_cell(children, definitions)}</a>'
        case Image(src, title, alt):
            return f'<img src="{attribute(src)}" alt="{attribute(alt)}"{_title(title)} />'
        case Break():
            return "<br />"
        case Verbatim(source):
            return source
        case Element(tag, children):
            if tag.kind == "self":
                return tag.source
            return f"{tag.source}{write_cell(children, definitions)}</{tag.name}>"


def _title(title: str | None) -> str:
    return "" if title is None else f' title="{attribute(title)}"'


def attribute(value: str) -> str:
    """Return a value as it stands between the double quotes of a JSX attribute."""
    for char, reference in (("&", "&amp;"), ('"', "&quot;"), ("\n", "&#10;"), ("\r", "&#13;")):
        value = value.replace(char, reference)
    return value


def write_text(value: str, definitions: bool) -> str:
    """Return characters as JSX text that holds no markup for MDX, Markdown or GitHub's link finder."""
    if not _SUSPECT.search(value):
        return value
    parts: list[str] = []
    done = 0
    for match in ADDRESS.finditer(value):
        parts.append(_escape(value[done : match.start()], definitions))
        parts.append(string(match.group()))
        done = match.end()
    parts.append(_escape(value[done:], definitions))
    return "".join(parts)


def is_punctuation(char: str) -> bool:
    """Tell whether a backslash before this character would be taken for an escape."""
    return char in _PUNCTUATION


def string(value: str) -> str:
    """Return characters as a JavaScript string in braces, which nothing looks into."""
    return "{" + json.dumps(value, ensure_ascii=False) + "}"


def _escape(value: str, definitions: bool) -> str:
    if value and not value.strip(" \t"):
        return string(value)  # MDX drops bare spaces from a line that holds only tags and expressions
    return "".join(_escaped_pieces(value, definitions))


def _escaped_pieces(value: str, definitions: bool) -> Iterator[str]:
    done = 0
    for match in _SPECIAL.finditer(value):
        yield value[done : match.start()]
        done = match.end()
        mark = match.group()
        before = _neighbour(value, match.start() - 1, ">", ";")
        after = _neighbour(value, done, "<", "&")
        if _is_harmless(mark, before, after, value, done, definitions):
            yield mark
        elif mark == "<":
            yield "&lt;"
        elif mark in "\n\r":
            yield string(mark)
        elif mark == "\xa0":
            yield "&nbsp;"
        elif mark == "&":
            yield "&amp;"
        else:
            yield "".join(f"&#{ord(char)};" for char in mark)
    yield value[done:]


def _neighbour(value: str, index: int, outside: str, reference: str) -> str:
    """Return the character that will stand at `index`, or the edge of the tag or reference that will."""
    if not 0 <= index < len(value) or value[index] in "\n\r":
        return outside
    return reference if value[index] == "\xa0" else value[index]


def _is_harmless(mark: str, before: str, after: str, value: str, end: int, definitions: bool) -> bool:
    """Tell whether a special character means nothing where it stands.

    A run that cannot close a span needs no care: no run that can close one is written bare.
    """
    match mark[0]:
        case "*" | "_" | "~":
            return mark == mark[0] * len(mark) and not flanks(mark[0], before, after)[1]
        case "[":
            return not definitions and after != "^"
        case "]":
            return after not in "([:"
        case "\\":
            return not is_punctuation(after)
        case "&":
            return not _REFERENCE.match(value, end)
        case ">" | "\t":
            return True
        case _:
            return False
