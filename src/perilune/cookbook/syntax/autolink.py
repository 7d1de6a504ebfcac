"""Links that are only written out: `https://...`, `www....` and mail addresses, as GitHub finds them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from perilune.cookbook.syntax.nodes import Element, Link, Mark, Node, Text, walk
from perilune.cookbook.syntax.uri import normalize

_TRAIL = re.compile(r"(?:[!\"')*,.:;?_~]|&[A-Za-z]+;|\](?![\[(\s\ufeff]|\Z))*(?:\](?=[\[(\s\ufeff]|\Z)|[<\s\ufeff]|\Z)")
_TRAIL_MARKS = frozenset("!\"&'*,.:;<?]_~")
_ATEXT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-._")
_PROTOCOL = re.compile(r"https?://", re.IGNORECASE)
_WWW = re.compile(r"www\.(?=[\s\S])", re.IGNORECASE)
_EMAIL = re.compile(r"[A-Za-z0-9+\-._]+@")
_EMAIL_DOMAIN = re.compile(r"[A-Za-z0-9_-](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9]))*")


def literal_at(text: str, pos: int, limit: int) -> tuple[int, str] | None:
    """Return the end and the target of the written-out link that begins at `pos`, or None."""
    before = text[pos - 1] if pos else ""
    first = text[pos]
    end: int | None
    if before != "/" and before not in _ATEXT and first in _ATEXT:
        end = _email_end(text, pos, limit)
        if end is not None:
            return end, "mailto:" + text[pos:end]
    if first in "hH" and not (before.isascii() and before.isalpha()):
        match = _PROTOCOL.match(text, pos, limit)
        if match and match.end() < limit and not _is_edge(text[match.end()]):
            end = _url_end(text, match.end(), limit)
            if end is not None:
                return end, text[pos:end]
    if first in "wW" and (not before or before in "(*_[]~ \t\n") and _WWW.match(text, pos, limit):
        end = _url_end(text, pos, limit)
        if end is not None:
            return end, "http://" + text[pos:end]
    return None


def _email_end(text: str, pos: int, limit: int) -> int | None:
    match = _EMAIL.match(text, pos, limit)
    if match is None:
        return None
    domain = _EMAIL_DOMAIN.match(text, match.end(), limit)
    return domain.end() if domain and "." in domain.group() and domain.group()[-1].isalpha() else None


def _is_edge(char: str) -> bool:
    return char.isspace() or char == "\ufeff" or ord(char) < 32 or _is_punctuation(char)


def _is_punctuation(char: str) -> bool:
    return ord(char) <= 0xFFFF and unicodedata.category(char)[0] in "PS"


def _url_end(text: str, pos: int, limit: int) -> int | None:
    end = _domain_end(text, pos, limit)
    return None if end is None else _path_end(text, end, limit)


def _domain_end(text: str, pos: int, limit: int) -> int | None:
    segments = [False]  # whether each dot-separated part holds an underscore
    start = pos
    while pos < limit:
        char = text[pos]
        if char in "._":
            if _TRAIL.match(text, pos, limit):
                break
            if char == "_":
                segments[-1] = True
            else:
                segments.append(False)
        elif char.isspace() or char == "\ufeff" or (char != "-" and _is_punctuation(char)):
            break
        pos += 1
    seen = any(char not in "._" for char in text[start:pos])
    return None if not seen or any(segments[-2:]) else pos


def _path_end(text: str, pos: int, limit: int) -> int:
    opened = closed = 0
    while pos < limit:
        char = text[pos]
        if char.isspace() or char == "\ufeff":
            break
        if char == "(":
            opened += 1
        elif char == ")":
            if closed >= opened and _TRAIL.match(text, pos, limit):
                break
            closed += 1
        elif char in _TRAIL_MARKS and _TRAIL.match(text, pos, limit):
            break
        pos += 1
    return pos


_MAYBE = re.compile(r"@|www|://", re.IGNORECASE)


def link_texts(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Make links of the addresses that stand in the texts of a tree, outside its links."""
    if not any(isinstance(node, Text) and _MAYBE.search(node.value) for node in walk(nodes)):
        return nodes
    for find in (_find_url, _find_xmpp, _find_mailto, _find_email):
        nodes = _in_texts(nodes, find)
    return nodes


_Find = Callable[[str, int], tuple[int, int, str] | None]


def _in_texts(nodes: tuple[Node, ...], find: _Find) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Text):
            found.extend(_split(node, find) if _MAYBE.search(node.value) else [node])
        elif isinstance(node, Mark):
            found.append(Mark(node.kind, _in_texts(node.children, find)))
        elif isinstance(node, Element):
            found.append(Element(node.tag, _in_texts(node.children, find)))
        else:
            found.append(node)
    return tuple(found)


def _split(node: Text, find: _Find) -> list[Node]:
    text, done, found = node.value, 0, list[Node]()
    while (hit := find(text, done)) is not None:
        start, end, target = hit
        if start > done:
            found.append(Text(text[done:start]))
        found.append(Link(normalize(target), None, (Text(text[start:end]),)))
        done = end
    if done < len(text):
        found.append(Text(text[done:]))
    return found or [node]


_URL = re.compile(r"(?<![0-9a-z])(https?://|www(?=\.))([\w-]*\.[\w\-.]*)([^\t\n\r ]*)", re.IGNORECASE | re.ASCII)
_XMPP = re.compile(r"(?<![\w+\-.@])xmpp:[\w+\-.]+@([\w-]+(?:\.[\w-]+)+)(/(?:[\w\-/]|\.(?=[0-9A-Za-z]))*)?", re.ASCII)
_MAILTO = re.compile(r"(?<![\w+\-.@])mailto:[\w+\-.]+@([\w-]+(?:\.[\w-]+)+)", re.ASCII)
_ADDRESS = re.compile(r"(?<![\w+\-.])[\w+\-.]+@([\w-]+(?:\.[\w-]+)+)", re.ASCII)
_SCHEME_BEFORE = re.compile(r"(?:\A|[^0-9@A-Za-z])(?:mailto|xmpp):\Z")
_BAD_LABEL_END = re.compile(r"[0-9\-_]\Z")
_URL_TRAIL = frozenset("!\"&'),.:;<>?]}")


def _matches(pattern: re.Pattern[str], text: str, pos: int) -> Iterator[re.Match[str]]:
    """Yield matches that begin at ever later characters, overlapping ones too."""
    while match := pattern.search(text, pos):
        yield match
        pos = match.start() + 1


def _find_url(text: str, pos: int) -> tuple[int, int, str] | None:
    for match in _matches(_URL, text, pos):
        start = match.start()
        before = text[start - 1] if start else ""
        if before and not (before.isspace() or before == "\ufeff" or _is_punctuation(before)):
            continue
        www = match[1][0] in "wW"
        domain = (match[1] if www else "") + match[2]
        if not domain or _is_punctuation(domain[0]) or not _is_domain(domain):
            continue
        length = len(_without_trail(domain + match[3])) + (0 if www else len(match[1]))
        return start, start + length, ("http://" if www else "") + text[start : start + length]
    return None


def _is_domain(domain: str) -> bool:
    parts = domain.split(".")
    return len(parts) > 1 and all(
        not part or ("_" not in part and re.search(r"[0-9A-Za-z]", part)) for part in parts[-2:]
    )


def _without_trail(url: str) -> str:
    end = len(url)
    while end and url[end - 1] in _URL_TRAIL:
        end -= 1
    kept, trail = url[:end], url[end:]
    opened, closed = kept.count("("), kept.count(")")
    while (paren := trail.find(")")) >= 0 and opened > closed:
        kept, trail = kept + trail[: paren + 1], trail[paren + 1 :]
        closed += 1
    return kept


def _find_xmpp(text: str, pos: int) -> tuple[int, int, str] | None:
    for match in _matches(_XMPP, text, pos):
        resource = match[2]
        if _BAD_LABEL_END.search(match[1]):
            continue
        if resource and (not resource[-1].isalpha() or text[match.end() : match.end() + 1] == "@"):
            continue
        return match.start(), match.end(), match.group()
    return None


def _find_mailto(text: str, pos: int) -> tuple[int, int, str] | None:
    for match in _matches(_MAILTO, text, pos):
        if not _BAD_LABEL_END.search(match[1]):
            return match.start(), match.end(), match.group()
    return None


def _find_email(text: str, pos: int) -> tuple[int, int, str] | None:
    for match in _matches(_ADDRESS, text, pos):
        if not _SCHEME_BEFORE.search(text, 0, match.start()) and not _BAD_LABEL_END.search(match[1]):
            return match.start(), match.end(), "mailto:" + match.group()
    return None
