"""The inline rules that MDX and GitHub add to Markdown's."""

from __future__ import annotations

import re
import string
import unicodedata

from markdown_it.rules_inline import StateInline

from perilune.cookbook.syntax.jsx import MdxError, Tag, scan_braces, scan_tag
from perilune.cookbook.syntax.spans import Run

_STOP = re.compile(r"[\n&*<\[\\\]_`{~]|!(?=\[)|https?:/|www\.", re.IGNORECASE)
_STOP_OR_EMAIL = re.compile(
    r"[\n&*<\[\\\]_`{~]|!(?=\[)|https?:/|www\.|(?<![A-Za-z0-9+\-._/])[A-Za-z0-9+\-._]+@", re.IGNORECASE
)
_FOOTNOTE = re.compile(r"\[\^([^\s\]\[]+)\]")
_JS_SPACE = frozenset("\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | frozenset(
    map(chr, range(0x2000, 0x200B))
)
_PUNCTUATION = frozenset(string.punctuation)


def text(state: StateInline, silent: bool) -> bool:
    """Take the characters up to the next one that may mean something."""
    stop = _STOP_OR_EMAIL if "@" in state.src else _STOP
    match = stop.search(state.src, state.pos, state.posMax)
    end = match.start() if match else state.posMax
    if end == state.pos:
        return False
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True


def run(state: StateInline, silent: bool) -> bool:
    """A run of `*` or `_`, or of one or two `~`."""
    marker = state.src[state.pos]
    if marker not in "*_~":
        return False
    end = state.pos
    while end < state.posMax and state.src[end] == marker:
        end += 1
    size = end - state.pos
    before = state.src[state.pos - 1] if state.pos else ""
    after = state.src[end] if end < state.posMax else ""
    if marker == "~" and size > 2:
        if not silent:
            state.append_pending(marker * size)
    elif not silent:
        opens, closes = flanks(marker, before, after)
        state.push("run", "", 0).meta["run"] = Run(marker, size, opens, closes)
    state.pos = end
    return True


def flanks(marker: str, before: str, after: str) -> tuple[bool, bool]:
    """Tell whether a run between these two characters may open and may close a span."""
    left, right = character_class(before), character_class(after)
    opens = not right or (right == 2 and bool(left)) or (after == "~" and marker != "~")
    closes = not left or (left == 2 and bool(right)) or (before == "~" and marker != "~")
    if marker == "_":
        return opens and (bool(left) or not closes), closes and (bool(right) or not opens)
    return opens, closes


def character_class(char: str) -> int:
    """Return 1 for whitespace or the edge of the text, 2 for punctuation and symbols, 0 for all else."""
    if not char or char in _JS_SPACE:
        return 1
    if char.isascii():
        return 0 if char.isalnum() or ord(char) < 32 or ord(char) == 127 else 2
    return 2 if ord(char) <= 0xFFFF and unicodedata.category(char)[0] in "PS" else 0


def escape(state: StateInline, silent: bool) -> bool:
    """A backslash before punctuation or a line end; before all else it is text, and so is what follows."""
    after = state.src[state.pos + 1 : state.pos + 2] if state.pos + 1 < state.posMax else ""
    if state.src[state.pos] != "\\" or not (after == "\n" or after in _PUNCTUATION) or not after:
        return False
    if not silent and after == "\n":
        state.push("hardbreak", "br", 0)
    elif not silent:
        state.push("text_special", "", 0).content = after
    state.pos += 2
    return True


def footnote(state: StateInline, silent: bool) -> bool:
    """`[^label]`, where the page defines that footnote."""
    match = _FOOTNOTE.match(state.src, state.pos, state.posMax)
    if match is None or match[1].casefold() not in state.env.get("footnotes", ()):
        return False
    if not silent:
        state.push("verbatim", "", 0).content = match.group()
    state.pos = match.end()
    return True


def jsx(state: StateInline, silent: bool) -> bool:
    """A tag or an expression."""
    char = state.src[state.pos]
    if char == "{":
        braces = scan_braces(state.src, state.pos, state.posMax)
        if not silent:
            state.push("verbatim", "", 0).content = braces.source
        state.pos = braces.end
        return True
    if char != "<":
        return False
    tag = scan_tag(state.src, state.pos, state.posMax)
    if tag is None:
        return False
    if not silent:
        state.push("tag", "", 0).meta["tag"] = tag
    state.pos = tag.end
    return True


_HTML_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?=[\s/>])")
_VOID = frozenset(("br", "img", "wbr", "hr"))
_PLAIN_TAGS = frozenset(("b", "i", "u", "s", "em", "strong", "code", "kbd", "sub", "sup", "del", "ins", "small"))
_PLAIN_TAGS |= {"mark", "span", "samp", "var", "q", "abbr", "cite", "a", "br", "img", "wbr"}
_SHARED_ATTRIBUTES = frozenset(("href", "title", "src", "alt", "width", "height", "id", "lang", "name"))


def html(state: StateInline, silent: bool) -> bool:
    """In plain Markdown: an HTML tag that means the same in JSX; other HTML is refused."""
    if state.src[state.pos] != "<":
        return False
    position = state.pos
    if state.src.startswith(("<!", "<?"), position):
        raise MdxError("an HTML comment or declaration has no equal in a JSX table", position)
    if not _HTML_TAG.match(state.src, position, state.posMax):
        return False
    tag = scan_tag(state.src, position, state.posMax)
    if tag is None:
        return False
    if tag.name.lower() not in _PLAIN_TAGS:
        raise MdxError(f"the HTML tag {tag} has no sure equal in JSX", position)
    for attribute in tag.attributes:
        if attribute.kind != "text" or attribute.name not in _SHARED_ATTRIBUTES:
            raise MdxError(f"the attribute `{attribute.name}` of {tag} is written otherwise in JSX", position)
    if not silent:
        state.push("tag", "", 0).meta["tag"] = _closed(tag)
    state.pos = tag.end
    return True


def _closed(tag: Tag) -> Tag:
    if tag.name.lower() not in _VOID or tag.kind != "open":
        return tag
    source = tag.source[:-1].rstrip() + " />"
    return Tag(tag.name, "self", tag.attributes, source, tag.start, tag.end)
