"""Inline rules for links and images, where GitHub's reading goes beyond or differs from markdown-it's."""

from __future__ import annotations

import re

from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline import image as markdown_image
from markdown_it.rules_inline import link as markdown_link

from perilune.cookbook.syntax.autolink import literal_at

_OPEN_RESOURCE = re.compile(r"\([ \t\n]*\Z")


def literal_link(state: StateInline, silent: bool) -> bool:
    """A written-out link; none is made inside a link or after a bracket that is still open."""
    if state.linkLevel or state.env.get("inside_images") or state.src[state.pos] in "\n&*<[\\]`{~!":
        return False
    if _open_brackets(state):
        return False
    found = literal_at(state.src, state.pos, state.posMax)
    if found is None:
        return False
    end, target = found
    if not silent:
        token = state.push("literal_link", "", 0)
        token.content = state.src[state.pos : end]
        token.meta["href"] = target
    state.pos = end
    return True


def _open_brackets(state: StateInline) -> bool:
    """Tell whether a bracket before the current position is still open."""
    end = state.pos
    if "[" not in state.src[:end]:
        return False
    if state.env.get("counting_brackets"):  # reached from inside a link's label
        return True
    state.env["counting_brackets"] = True
    depth = state.pos = 0
    try:
        while state.pos < end:
            start = state.pos
            state.md.inline.skipToken(state)
            if state.pos == start + 1:
                depth += {"[": 1, "]": -1 if depth else 0}.get(state.src[start], 0)
    finally:
        state.pos = end
        state.env["counting_brackets"] = False
    return depth > 0


def link(state: StateInline, silent: bool) -> bool:
    """A link; a bracket that a reference's own label leaves open or a parenthesis at the end spoils none."""
    if state.src[state.pos] != "[":
        return False
    if _second_label_is_open(state, state.pos):
        return False
    if markdown_link(state, silent):
        return True
    end = state.md.helpers.parseLinkLabel(state, state.pos, True)
    if end < 0 or not _OPEN_RESOURCE.match(state.src, end + 1, state.posMax):
        return False
    limit, state.posMax = state.posMax, end + 1
    found = bool(markdown_link(state, silent))
    state.posMax = limit
    return found


def _second_label_is_open(state: StateInline, start: int) -> bool:
    if "references" not in state.env:
        return False
    end = state.md.helpers.parseLinkLabel(state, start, True)
    if end < 0 or not state.src.startswith("[", end + 1, state.posMax):
        return False
    return bool(state.md.helpers.parseLinkLabel(state, end + 1) < 0)


def image(state: StateInline, silent: bool) -> bool:
    """An image, in whose description no written-out link is made."""
    if not state.src.startswith("![", state.pos) or _second_label_is_open(state, state.pos + 1):
        return False
    state.env["inside_images"] = state.env.get("inside_images", 0) + 1
    try:
        return bool(markdown_image(state, silent))
    finally:
        state.env["inside_images"] -= 1
