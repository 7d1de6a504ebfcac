"""Commands that Perilune wrote: their platform, and the placeholders that are meant to be filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from perilune.plan.sources.found import Found, Note, Reading

_HEADER = re.compile(r"^# perilune commands: platform ([a-z0-9]+)[ \t]*\r?$", re.MULTILINE)
_TOKEN = re.compile(r"<[A-Za-z][^<>\n]{0,60}>")


def header(platform: str) -> str:
    """The comment above commands for one platform, which says so to whoever reads them again."""
    return f"# perilune commands: platform {platform}"


def composed(reading: Reading) -> Reading:
    """A reading in which the commands below such a comment have its platform, their open placeholders said."""
    text = reading.text
    if text is None or "# perilune commands:" not in text.text:
        return reading
    headers = [(text.line(match.start()), match[1]) for match in _HEADER.finditer(text.text)]
    means = _own_placeholders()
    servers = []
    notes: dict[str, Note] = {}
    for one in reading.servers:
        platform = next((name for line, name in reversed(headers) if line < one.line), None)
        if platform is None:
            servers.append(one)
            continue
        tokens = dict(_tokens(one))
        for token, place in tokens.items():
            if token in means and token not in notes:
                line = one.line if place is None else text.line(place)
                message = f"{token} is still to be filled in: {means[token].rstrip('.')}."
                notes[token] = Note(message, line, "Write your own value.", "fill-in")
        own = means.keys() >= tokens.keys()
        servers.append(replace(_without_flags(one) if own else one, platform=platform, composed=own))
    return replace(reading, servers=tuple(servers)).with_notes(*notes.values())


def _without_flags(found: Found) -> Found:
    """The server without placeholders that stand for a whole flag: no value of any other."""
    flags = [range(flag.position, flag.end) for flag in found.server.flags]
    kept = [
        index
        for index, word in enumerate(found.words)
        if not _TOKEN.fullmatch(word.text) or any(index in flag for flag in flags)
    ]
    words = tuple(found.words[index] for index in kept)
    return replace(found, words=words, server=replace(found.server, argv=tuple(word.text for word in words)))


def _own_placeholders() -> dict[str, str]:
    """Every placeholder that composed commands can hold, and what it stands for."""
    from perilune.facts.recipes import all_recipes, catalog  # only here: most files are of another hand

    known = {one.token: one.means for one in catalog().placeholders}
    return known | {one.placeholder: one.what for recipe in all_recipes() for one in recipe.cell.unpublished}


def _tokens(found: Found) -> Iterator[tuple[str, int | None]]:
    for word in (*found.words, *found.env.values()):
        for token in _TOKEN.findall(word.text):
            yield token, word.at
