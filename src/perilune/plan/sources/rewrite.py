"""A server's changes made in the text it came from, byte by byte where its words stand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import yaml

from perilune.errors import UnusableInput
from perilune.plan.server import Server
from perilune.plan.sources.changes import Change, Unplaceable, applied, line_end, line_start, next_line
from perilune.plan.sources.found import Found, Reading, Word
from perilune.plan.sources.text import Text
from perilune.plan.sources.variables import variable_changes

Reader = Callable[[Text], Reading]
_GAP = re.compile(r"(?:\s|\\\r?\n)+")
_PLAIN = re.compile(r"[\w@%+:./=-]+")
_UNSURE = re.compile(r"[#\[\]{},&*!|>'\"%@`]|: |^[-?:] ")


def rewritten(text: Text, found: Sequence[Found], wanted: Sequence[Server], read: Reader) -> tuple[Text, list[Found]]:
    """The text in which the servers `found` are those `wanted`, and the servers whose change has no place there.

    Every result was read again and gives exactly the wanted servers, but for variables that a flag's value came
    from; all else in the text stays as it was.
    """
    changed = [index for index, one in enumerate(found) if one.server != wanted[index]]
    if not changed:
        return text, []
    try:
        changes = [c for index in changed for c in _changes(text, found[index], wanted[index])]
        together = applied(text, changes)
        one_each = _different(found, wanted)
        different, goal = [found[index] for index in one_each], [wanted[index] for index in one_each]
        if _gives(together, different, goal, changes, read) is not None:
            return together, []
    except Unplaceable:
        pass
    return _one_by_one(text, found, wanted, read)


def _different(found: Sequence[Found], wanted: Sequence[Server]) -> list[int]:
    """The servers without those of another way that become the same command in the same place."""
    seen: dict[object, int] = {}
    for index, one in enumerate(found):
        seen.setdefault((one.line, one.first, wanted[index]), index)
    return list(seen.values())


def _one_by_one(text: Text, found: Sequence[Found], wanted: Sequence[Server], read: Reader) -> tuple[Text, list[Found]]:
    left = []
    current, now = text, list(found)
    for index, one in enumerate(found):
        if now[index].server == wanted[index]:
            continue
        goal = [wanted[i] if i == index else other.server for i, other in enumerate(now)]
        try:
            changes = list(_changes(current, now[index], wanted[index]))
            better = applied(current, changes)
        except Unplaceable:
            left.append(one)
            continue
        again = _gives(better, now, goal, changes, read)
        if again is None:
            left.append(one)
            continue
        current, now = better, again
    return current, left


def _gives(
    text: Text, found: Sequence[Found], wanted: Sequence[Server], changes: Sequence[Change], read: Reader
) -> list[Found] | None:
    """The servers of a changed text where they are those wanted."""
    try:
        again = list(read(text).servers)
    except UnusableInput:
        return None
    if len(again) != len(wanted):
        return None
    moved = [_moved(one, server, changes) for one, server in zip(found, wanted, strict=True)]
    same = (_meaning(a.server, m) == _meaning(w, m) for a, w, m in zip(again, wanted, moved, strict=True))
    return again if all(same) else None


def _moved(found: Found, wanted: Server, changes: Sequence[Change]) -> set[str]:
    """The variables that got another value because a flag's value is theirs."""
    environment = wanted.environment
    return {
        name
        for name, word in found.env.items()
        if word.start is not None
        and environment.get(name) == word.text
        and any(word.start <= change.start and change.end <= word.end for change in changes)
    }


def _meaning(server: Server, without: set[str]) -> object:
    """What spellings of a server share: the order of different flags says nothing."""
    flags = sorted(((flag.spelled, flag.values) for flag in server.flags), key=lambda flag: flag[0])
    environment = {name: text for name, text in server.environment.items() if name not in without}
    return server.program, sorted(server.argv), flags, environment, server.image


def _changes(text: Text, found: Found, wanted: Server) -> Iterator[Change]:
    if (found.server.program, found.server.argv[:0]) != (wanted.program, ()):
        raise Unplaceable
    if any(word.style == "entry" and word.text.startswith("--") for word in found.words):
        yield from _entry_changes(text, found, wanted)
    else:
        yield from _word_changes(text, found, wanted)
    yield from variable_changes(text, found, wanted, written)


# Words in a shell or in a list


def _word_changes(text: Text, found: Found, wanted: Server) -> Iterator[Change]:
    old, new = list(found.server.argv), list(wanted.argv)
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        both = min(j - i, m - k)
        for offset in range(both):
            yield _replaced(text, found.words[i + offset], new[k + offset])
        if j - i > both:
            yield from _deleted(text, found, i + both, j)
        elif m - k > both:
            yield _inserted(text, found, i + both, new[k + both : m])


def _replaced(text: Text, word: Word, new: str) -> Change:
    if word.start is None:
        raise Unplaceable
    return Change(word.start, word.end, written(text, word, new))


def written(text: Text, word: Word, new: str) -> str:
    """A word's new text, quoted as its place needs it."""
    old = text.text[word.start : word.end] if word.start is not None else ""
    if word.style == "shell":
        return new if _PLAIN.fullmatch(new) else shlex.quote(new)
    if word.style == "json" or old.startswith('"'):
        return json.dumps(new, ensure_ascii=False)
    if old.startswith("'"):
        return "'" + new.replace("'", "''") + "'"
    same = _plain_value(new) == new or (word.style == "entry" and not isinstance(_plain_value(old), str))
    return new if new and same and not _UNSURE.search(new) else json.dumps(new, ensure_ascii=False)


def _plain_value(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _deleted(text: Text, found: Found, first: int, last: int) -> Iterator[Change]:
    for index in range(first, last):
        word = found.words[index]
        if word.start is None:
            raise Unplaceable
        if word.style == "shell":
            before = found.words[index - 1] if index else found.head
            yield Change(_gap_start(text, before, word), word.end, "")
        elif word.style == "item":
            yield _item_deleted(text, word.start, word.end)
        else:
            yield _listed_deleted(text, word.start, word.end)


def _gap_start(text: Text, before: Word | None, word: Word) -> int:
    """Where the blank in front of a word starts, so that no blank is left behind."""
    assert word.start is not None  # noqa: S101 - the caller has looked
    if before is not None and 0 < before.end <= word.start and _GAP.fullmatch(text.text, before.end, word.start):
        return before.end
    start = word.start
    while start and text.text[start - 1] in " \t":
        start -= 1
    return start if start and text.text[start - 1] != "\n" else word.start


def _item_deleted(text: Text, start: int, end: int) -> Change:
    source = text.text
    line = line_start(source, start)
    if re.fullmatch(r"[ \t]*-[ \t]+", source[line:start]):
        return Change(line, next_line(source, end), "")
    return _listed_deleted(text, start, end)


def _listed_deleted(text: Text, start: int, end: int) -> Change:
    """An item of `[a, b]` with the comma in front of it, or behind the first one."""
    source = text.text
    before = re.search(r",[\s\\]*$", source[max(0, start - 400) : start])
    if before:
        return Change(start - len(before.group()), end, "")
    behind = re.match(r"[\s\\]*,[ \t]*", source[end : end + 400])
    if behind is None:
        raise Unplaceable
    return Change(start, end + len(behind.group()), "")


def _inserted(text: Text, found: Found, index: int, new: Sequence[str]) -> Change:
    """Words put behind the one before `index`, set apart as the flags before them are."""
    before = found.words[index - 1] if index else found.head
    if before is None or before.start is None:
        raise Unplaceable
    end = before.end
    if before.style == "shell":
        gap = _flag_gap(text, found, index)
        parts = ((gap if word.startswith("--") else " ") + written(text, Word(word), word) for word in new)
        return Change(end, end, "".join(parts))
    line = line_start(text.text, before.start)
    dash = re.fullmatch(r"[ \t]*-[ \t]+", text.text[line : before.start])
    if before.style == "item" and dash:
        at = line_end(text.text, end)
        newline = "\r\n" if text.text[at : at + 1] == "\r" else "\n"
        return Change(at, at, "".join(newline + dash.group() + _item(text, before, word) for word in new))
    return Change(end, end, "".join(", " + _item(text, before, word) for word in new))


def _item(text: Text, like: Word, word: str) -> str:
    quoted = replace(like, text=word)
    return written(text, quoted, word)


def _flag_gap(text: Text, found: Found, index: int) -> str:
    """What stands before the last flag in front of `index`: a blank, or the end of a line and an indent."""
    for number in range(min(index, len(found.words)) - 1, 0, -1):
        word, before = found.words[number], found.words[number - 1]
        if word.text.startswith("--") and word.start is not None and before.start is not None:
            gap = text.text[before.end : word.start]
            if _GAP.fullmatch(gap):
                return gap
    return " "


# Entries of a mapping


def _entry_changes(text: Text, found: Found, wanted: Server) -> Iterator[Change]:
    old, new = _by_flag(found.server), _by_flag(wanted)
    at = {flag.spelled: flag.position for flag in found.server.flags}
    for name, values in old.items():
        key, position = found.words[at[name]], at[name]
        if new.get(name) == values:
            continue
        if key.start is None:
            raise Unplaceable
        if name not in new and key.style == "entry":
            yield _entry_deleted(text, key)
        elif name not in new:
            yield from _deleted(text, found, position, position + 1 + len(values))
        elif len(values) == len(new[name]) == 1:
            yield _replaced(text, found.words[position + 1], new[name][0])
        elif key.style == "entry":
            yield Change(key.start, key.end, _entry(name, new[name]))
        else:
            raise Unplaceable
    added = [_entry(name, values) for name, values in new.items() if name not in old]
    if added:
        kept = [found.words[at[name]] for name in old if name in new]
        entries = [key for key in kept if key.start is not None and key.style == "entry"]
        if not entries:
            raise Unplaceable
        yield _entry_added(text, max(entries, key=lambda word: word.end), added)


def _by_flag(server: Server) -> dict[str, tuple[str, ...]]:
    return {flag.spelled: flag.values for flag in server.flags}


def _entry(flag: str, values: Sequence[str]) -> str:
    name = flag.removeprefix("--")
    if not values:
        return f"{name}: true"
    shown = [v if v and _PLAIN.fullmatch(v) and str(_plain_value(v)) == v else json.dumps(v) for v in values]
    return f"{name}: {shown[0]}" if len(shown) == 1 else f"{name}: [{', '.join(shown)}]"


def _entry_deleted(text: Text, key: Word) -> Change:
    source, start = text.text, key.start or 0
    line = line_start(source, start)
    if not source[line:start].strip():
        return Change(line, next_line(source, key.end), "")
    return _listed_deleted(text, start, key.end)


def _entry_added(text: Text, last: Word, added: Sequence[str]) -> Change:
    source, start = text.text, last.start or 0
    indent = source[line_start(source, start) : start]
    if indent.strip():
        return Change(last.end, last.end, "".join(f", {entry}" for entry in added))
    at = line_end(source, last.end)
    newline = "\r\n" if source[at : at + 1] == "\r" else "\n"
    return Change(at, at, "".join(newline + indent + entry for entry in added))
