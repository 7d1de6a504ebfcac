"""Where a JavaScript expression in a page ends, and whether JavaScript in a page is well formed.

MDX ends an expression at the first `}` before which the text parses as JavaScript; so does this module.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

import tree_sitter
import tree_sitter_javascript

MAX_TRIES = 64

_OPAQUE_OR_BRACE = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\[\s\S])*`|/\*[\s\S]*?\*/|[{}]""")
_COMMENTS = re.compile(r"/\*[\s\S]*?\*/|//[^\n]*")
_MODULE_STATEMENTS = {"import_statement", "export_statement", "comment"}


def expression_end(source: str, start: int, limit: int, *, spread: bool = False, empty: bool = True) -> int | None:
    """Return the index of the `}` that ends the expression whose text begins at `start`, or None.

    `spread` asks for `...object`, `empty` allows nothing or only comments between the braces.
    """
    depth = 0
    for match in _OPAQUE_OR_BRACE.finditer(source, start, limit):
        mark = match.group()
        if mark == "{":
            depth += 1
        elif mark == "}":
            if depth == 0:
                if _acceptable(source[start : match.start()], spread, empty):
                    return match.start()
                break
            depth -= 1
    return _first_that_parses(source, start, limit, spread, empty)


def _first_that_parses(source: str, start: int, limit: int, spread: bool, empty: bool) -> int | None:
    end = source.find("}", start, limit)
    for _ in range(MAX_TRIES):
        if end < 0:
            return None
        if _acceptable(source[start:end], spread, empty):
            return end
        end = source.find("}", end + 1, limit)
    return None


@lru_cache(maxsize=4096)
def _acceptable(text: str, spread: bool, empty: bool) -> bool:
    if spread:
        return text.lstrip().startswith("...") and _parses(f"({{{text}\n}})")
    if not _COMMENTS.sub("", text).strip():
        return empty
    return _parses(f"(\n{text}\n)")


def _parses(text: str) -> bool:
    root = _parser().parse(text.encode("utf-8")).root_node
    return not root.has_error and root.named_child_count == 1


@lru_cache(maxsize=256)
def is_module(text: str) -> bool:
    """Tell whether `text` is only JavaScript `import` and `export` statements."""
    root = _parser().parse(text.encode("utf-8")).root_node
    return not root.has_error and all(child.type in _MODULE_STATEMENTS for child in root.named_children)


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))
