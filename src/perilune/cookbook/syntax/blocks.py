"""The block rules of MDX that differ from Markdown's: tags and expressions, and no indented code.

Without indented code a line may be indented at will, so a paragraph ends at any block that follows.
"""

from __future__ import annotations

import re

from markdown_it.rules_block import StateBlock
from markdown_it.rules_block import reference as markdown_reference

from perilune.cookbook.page import PageError
from perilune.cookbook.syntax import pipes
from perilune.cookbook.syntax.esm import starts_esm
from perilune.cookbook.syntax.jsx import MdxError, UnfinishedError, scan_flow

_BLOCK_STARTS = frozenset("`~>*-_+#<{[|:=0123456789")
_FOOTNOTE = re.compile(r"\[\^([^\s\]\[]+)\]:")


def flow(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: lines that hold only tags and expressions."""
    first = state.bMarks[start] + state.tShift[start]
    if first >= state.eMarks[start] or state.src[first] not in "<{":
        return False
    count = 1
    while True:
        stop = _container_end(state, start, min(start + count, end))
        text = state.getLines(start, stop, state.blkIndent, False).lstrip(" \t")
        try:
            found = scan_flow(text)
            break
        except UnfinishedError as error:
            if stop < start + count or stop >= end:
                raise _at(error, text, start) from None
            count *= 4
        except MdxError as error:
            raise _at(error, text, start) from None
    if found is None:
        return False
    if not silent:
        parts, length = found
        state.line = start + 1 + text.count("\n", 0, length)
        token = state.push("mdx_flow", "", 0)
        token.map = [start, state.line]
        token.content = text[:length]
        token.meta["parts"] = parts
    return True


def _container_end(state: StateBlock, start: int, end: int) -> int:
    """Return the first line from `start + 1` to `end` that stands outside the container of `start`."""
    line = start + 1
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    return line


def _at(error: MdxError, text: str, start: int) -> PageError:
    return PageError(error.message, start + 1 + text.count("\n", 0, error.offset))


def prose(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: a heading or paragraph that begins as no other block can, found without trying them all."""
    if not _is_plain(state, start, end) or starts_esm(state, start):
        return False
    return heading_underlined(state, start, end, silent) or paragraph(state, start, end, silent)


def _is_plain(state: StateBlock, line: int, end: int) -> bool:
    if state.src[state.bMarks[line] + state.tShift[line]] in _BLOCK_STARTS:
        return False
    return line + 1 >= end or not pipes.may_be_delimiter(state, line + 1)


def heading_underlined(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: a paragraph underlined with `===` or `---`."""
    line = start + 1
    before, state.parentType = state.parentType, "paragraph"
    while line < end and not state.isEmpty(line) and not (mark := _underline(state, line)):
        if _paragraph_ends(state, line, end):
            state.parentType = before
            return False
        line += 1
    state.parentType = before
    if line >= end or state.isEmpty(line):
        return False
    tag = "h1" if mark == "=" else "h2"
    state.line = line + 1
    state.push("heading_open", tag, 1).map = [start, line + 1]
    _push_inline(state, start, line)
    state.push("heading_close", tag, -1)
    return True


def _underline(state: StateBlock, line: int) -> str:
    if state.sCount[line] < state.blkIndent:
        return ""
    text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip(" \t")
    return text[0] if text and text[0] in "=-" and not text.strip(text[0]) else ""


def paragraph(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: lines of text up to a blank line or another block."""
    line = start + 1
    before, state.parentType = state.parentType, "paragraph"
    while line < state.lineMax and not state.isEmpty(line) and not _paragraph_ends(state, line, state.lineMax):
        line += 1
    state.parentType = before
    state.line = line
    state.push("paragraph_open", "p", 1).map = [start, line]
    _push_inline(state, start, line)
    state.push("paragraph_close", "p", -1)
    return True


def _paragraph_ends(state: StateBlock, line: int, end: int) -> bool:
    if state.sCount[line] < 0:  # a lazy line of a block quote, already judged there
        return line + 1 < end and state.sCount[line + 1] >= 0 and pipes.table(state, line, end, True)
    if _is_plain(state, line, end):
        return False
    for rule in state.md.block.ruler.getRules("paragraph"):
        if rule(state, line, end, True):
            if rule is pipes.table:
                state.env["table_after_text"] = line
            return True
    return False


def _push_inline(state: StateBlock, start: int, end: int) -> None:
    token = state.push("inline", "", 0)
    token.content = state.getLines(start, end, state.blkIndent, False).strip(" \t\n")
    token.map = [start, end]


def footnote_definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: `[^label]:` and what follows it, indented by four columns."""
    first = state.bMarks[start] + state.tShift[start]
    match = _FOOTNOTE.match(state.src, first, state.eMarks[start])
    if match is None or state.is_code_block(start):
        return False
    if silent:
        return True
    state.env.setdefault("footnotes", set()).add(match[1].casefold())
    state.push("footnote_open", "", 1).map = [start, end]
    saved = (state.bMarks[start], state.tShift[start], state.sCount[start], state.blkIndent, state.parentType)
    text = match.end()
    while text < state.eMarks[start] and state.src[text] in " \t":
        text += 1
    state.blkIndent += 4
    state.bMarks[start], state.tShift[start], state.sCount[start] = match.end(), text - match.end(), state.blkIndent
    state.parentType = "footnote"
    state.md.block.tokenize(state, start, end)
    state.bMarks[start], state.tShift[start], state.sCount[start], state.blkIndent, state.parentType = saved
    state.push("footnote_close", "", -1)
    return True


def reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: a link definition; `[^label]:` defines a footnote and is none."""
    if state.src.startswith("[^", state.bMarks[start] + state.tShift[start]):
        return False
    return markdown_reference(state, start, end, silent)
