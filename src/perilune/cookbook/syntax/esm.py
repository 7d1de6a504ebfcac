"""`import` and `export` statements between the blocks of an MDX page."""

from __future__ import annotations

from markdown_it.rules_block import StateBlock

from perilune.cookbook.page import PageError
from perilune.cookbook.syntax.js import is_module

MAX_BLANK_LINES = 200


def starts_esm(state: StateBlock, line: int) -> bool:
    """Tell whether a line at the left edge of the page, outside any container, opens such statements."""
    start = state.bMarks[line]
    return state.tShift[line] == 0 and state.blkIndent == 0 and state.src.startswith(("import ", "export "), start)


def esm(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Block rule: statements up to the first blank line before which they are whole."""
    if silent or state.parentType != "root" or state.level or not starts_esm(state, start):
        return False
    line = start
    for _ in range(MAX_BLANK_LINES):
        while line < end and not state.isEmpty(line):
            line += 1
        if is_module(state.src[state.bMarks[start] : state.eMarks[line - 1]]):
            break
        while line < end and state.isEmpty(line):
            line += 1
        if line >= end:
            raise PageError("a line that begins with `import` or `export` must be valid JavaScript", start + 1)
    else:
        raise PageError("a line that begins with `import` or `export` must be valid JavaScript", start + 1)
    token = state.push("esm", "", 0)
    token.map = [start, line]
    state.line = line
    return True
