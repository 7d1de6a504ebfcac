"""Changes of a server's variables, in the text they are written in."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator

from perilune.plan.server import Server
from perilune.plan.sources.changes import Change, Unplaceable, line_end, line_start, next_line
from perilune.plan.sources.found import Found, Word
from perilune.plan.sources.text import Text

Write = Callable[[Text, Word, str], str]
_LOOK_BACK = 400
_ITEM = re.compile(r"[ \t]*-[ \t]+")


def variable_changes(text: Text, found: Found, wanted: Server, written: Write) -> Iterator[Change]:
    """What to change so that the server gets the variables wanted; raises Unplaceable."""
    old, new = dict(found.server.environment), dict(wanted.environment)
    for name, value in old.items():
        if new.get(name) == value:
            continue
        word = found.env.get(name)
        if word is None or word.start is None:
            raise Unplaceable
        if name in new:
            yield Change(word.start, word.end, written(text, word, new[name]))
        elif word.style == "shell":
            yield _assignment_removed(text.text, name, word)
        else:
            yield _entry_removed(text.text, name, word)
    added = {name: value for name, value in new.items() if name not in old}
    if added:
        yield _added(text.text, found, added)


def _assignment_removed(source: str, name: str, word: Word) -> Change:
    """`NAME=value` in front of a command, exported, as `-e NAME=value` or in a list."""
    start = word.start or 0
    before = re.search(rf"(?:(?:-e|--env)(?:\s+|=))?[\"']?{re.escape(name)}=[\"']?$", _before(source, start))
    if before is None:
        raise Unplaceable
    first = start - len(before.group())
    line, stop = line_start(source, first), line_end(source, word.end)
    alone = re.fullmatch(r"\s*(?:export\s+|-\s+)?", source[line:first])
    if alone and not source[word.end : stop].strip(" \t;\r\"'"):
        return Change(line, next_line(source, word.end), "")
    behind = re.compile(r"[\"']?(?:[ \t]|\\\r?\n)*").match(source, word.end)
    return Change(first, behind.end() if behind else word.end, "")


def _entry_removed(source: str, name: str, word: Word) -> Change:
    """A variable of a YAML list or mapping, with its line or lines."""
    value, before = rf"[\"']?{re.escape(name)}[\"']?", _before(source, word.start or 0)
    forms = (
        rf"(?:^|\n)(?P<all>[ \t]*-[ \t]+name:[ \t]*{value}[ \t]*\r?\n[ \t]*value:[ \t]*)$",
        rf"(?:^|\n)(?P<all>[ \t]*-[ \t]+\{{[ \t]*name:[ \t]*{value},[ \t]*value:[ \t]*)$",
        rf"(?:^|\n)(?P<all>[ \t]*{value}:[ \t]*)$",
    )
    for form in forms:
        if match := re.search(form, before):
            return Change((word.start or 0) - len(match["all"]), next_line(source, word.end), "")
    raise Unplaceable


def _before(source: str, start: int) -> str:
    return source[max(0, start - _LOOK_BACK) : start]


def _added(source: str, found: Found, added: dict[str, str]) -> Change:
    if found.server.container and found.opening is not None:
        image = re.compile(rf"(?<!\S){re.escape(found.server.image or '')}(?!\S)").search(source, found.opening)
        if image is None:
            raise Unplaceable
        given = "".join(f"--env {shlex.quote(f'{name}={value}')} " for name, value in added.items())
        return Change(image.start(), image.start(), given)
    if found.env_tail is not None and found.env_tail.start is not None:
        return _listed(source, found.env_tail, found.env_tail.start, added)
    if found.opening is None:
        raise Unplaceable
    given = "".join(f"{name}={shlex.quote(value)} " for name, value in added.items())
    return Change(found.opening, found.opening, given)


def _listed(source: str, tail: Word, start: int, added: dict[str, str]) -> Change:
    """New entries behind the last one of a YAML list or mapping of variables."""
    lead = source[line_start(source, start) : start]
    at = line_end(source, max(start, tail.end - 1))
    newline = "\r\n" if source[at : at + 1] == "\r" else "\n"
    if not lead.strip():
        forms = [f"{name}: {json.dumps(value)}" for name, value in added.items()]
    elif not _ITEM.fullmatch(lead):
        raise Unplaceable
    elif tail.style == "item":
        forms = [f"{name}={value}" for name, value in added.items()]
    else:
        forms = [f"{{name: {name}, value: {json.dumps(value)}}}" for name, value in added.items()]
    return Change(at, at, "".join(newline + lead + form for form in forms))
