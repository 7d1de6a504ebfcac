"""Rules on links: anchors exist, and what looks like a link is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from perilune.cookbook.lint.finding import PageFinding, at
from perilune.cookbook.lint.source import Source

_BROKEN = (
    (re.compile(r"\[[^\[\]]+\] \((?:https?:|\.{0,2}/|#)[^()\s]*\)"), "a space stands between the text and the target"),
    (
        re.compile(r"\([^()]+\)\[(?:https?:|\.{0,2}/|#)[^\[\]\s]*\]"),
        "round and square brackets are the wrong way round",
    ),
    (re.compile(r"\[[^\[\]]+\]\([^()]*\s[^()]*\)"), "the target holds a space"),
    (re.compile(r"\[[^\[\]]+\]\((?:https?:|\.{0,2}/|#)[^()]*\Z"), "the target is never closed"),
)
_SCHEME = re.compile(r"(?:https?|mailto)(?=:/?[^/]|/)|htps?:|ttps?:", re.IGNORECASE)


def anchors_exist(source: Source) -> Iterator[PageFinding]:
    """`#anchor` names a heading or an id of the page."""
    for link in source.links:
        target = unquote(link.text)
        if target.startswith("#") and len(target) > 1 and target[1:] not in source.anchors:
            near = _near(target[1:], source.anchors)
            fix = f"Did you mean #{near}?" if near else ""
            yield at(link.line, "missing-anchor", f"The page has no heading or id {target}.", fix)


def _near(anchor: str, known: set[str]) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(anchor, sorted(known), n=1, cutoff=0.6)
    return found[0] if found else None


def links_are_well_formed(source: Source) -> Iterator[PageFinding]:
    """Nothing that was meant as a link is left as text, and no link goes nowhere."""
    for sentence in source.sentences:
        for pattern, reason in _BROKEN:
            for match in pattern.finditer(sentence.text):
                yield at(
                    sentence.line_of(match.group()),
                    "malformed-link",
                    f"{match.group()[:80]!r} is no link: {reason}.",
                    "Write [text](target).",
                )
    for link in source.links:
        if not link.text:
            yield at(link.line, "malformed-link", "A link has no target.", "Write [text](target).")
        elif _SCHEME.match(link.text) and not re.match(r"https?://[^/]|mailto:[^/]", link.text, re.IGNORECASE):
            yield at(link.line, "malformed-link", f"{link.text[:80]!r} is no URL.", "Write https://host/path.")
