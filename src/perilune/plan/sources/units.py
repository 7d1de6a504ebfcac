"""Units of systemd and programs of supervisord: the commands in a file of sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from perilune.errors import UnusableInput
from perilune.plan.sources.beside import Beside
from perilune.plan.sources.changes import line_end, next_line
from perilune.plan.sources.found import Note, Reading, Word
from perilune.plan.sources.launch import Surroundings, read_script
from perilune.plan.sources.mentions import MENTION
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import NoServer, Text
from perilune.plan.sources.words import Scope, words_of

_SECTION = re.compile(r"\[([^\]\n]+)\]\s*$")
_ENTRY = re.compile(r"([A-Za-z][\w.-]*)[ \t]*=[ \t]*")
_STARTS = frozenset({"ExecStart", "command"})
_SPECIFIER = re.compile(r"%\(\w+\)[sd]|%[A-Za-z]")


@dataclass
class Section:
    """A section with its entries, each as a script without the ends of its lines."""

    name: str
    entries: list[tuple[str, Script]] = field(default_factory=list)


def read_units(text: Text, beside: Beside | None = None) -> Reading:
    """Read what every section starts; raises UnusableInput where the file has no section."""
    around = Surroundings(text, "unit", beside=beside)
    found = list(_sections(text))
    if not found:
        raise NoServer("It has no section that starts a server.", where=text.name)
    for section in found:
        part = around.of("unit", section.name)
        env: dict[str, Word] = {}
        for name, script in section.entries:
            if name in ("Environment", "environment"):
                env |= _variables(script)
            elif name == "EnvironmentFile":
                message = f"What {script.src.lstrip('-')[:80]} sets is not known here."
                around.notes.append(Note(message, script.line(0)))
                part.foreign = True
        part.env = env
        for name, script in section.entries:
            if name in _STARTS and MENTION.search(script.src):
                _start(script, part)
    return around.reading("unit", None)


def _start(script: Script, part: Surroundings) -> None:
    skipped = len(script.src) - len(script.src.lstrip("-@:+!"))
    command = Script(script.text, script.src[skipped:], script.at[skipped:])
    before = len(part.found)
    try:
        if not _SPECIFIER.search(command.src):
            read_script(command, part)
        why = "" if len(part.found) > before else "it is in a form that cannot be read"
        # a variable in front of the command would be taken for the program
        part.found[before:] = [replace(one, opening=None) for one in part.found[before:]]
    except UnusableInput as problem:
        why = problem.message
    if why:
        part.notes.append(Note(f"This command is not checked: {why.rstrip('.')}.", script.line(0), unread=True))


def _variables(script: Script) -> dict[str, Word]:
    """NAME=VALUE words, quoted or not, with blanks or commas between them."""
    found: dict[str, Word] = {}
    flat = Script(script.text, re.sub(r",(?=[A-Za-z_]\w*=)", " ", script.src), script.at)
    for word in _plain_words(flat):
        name, equals, value = word.text.partition("=")
        if equals:
            places = word.places[len(name) + 1 :]
            whole = bool(places) and places == tuple(range(places[0], places[0] + len(places)))
            at = places[0] if places else word.at
            end = places[-1] + 1 if places else 0
            found[name] = Word(value, at, at if whole else None, end, places=places)
    return found


def _plain_words(script: Script) -> list[Word]:
    found: list[Word] = []
    for node in script.loose_words():
        if node.type == "variable_assignment" and (value := node.child_by_field_name("value")) is not None:
            target = node.child_by_field_name("name")
            words = words_of(script, [value], Scope())
            found += [_named(script.of(target) if target else "", word) for word in words]
        else:
            found += words_of(script, [node], Scope())
    return found


def _named(name: str, value: Word) -> Word:
    """An assignment as one word."""
    here = value.at or 0
    lead = (here,) * (len(name) + 1)
    places = value.places if len(value.places) == len(value.text) else (here,) * len(value.text)
    return Word(f"{name}={value.text}", here, places=(*lead, *places))


def _sections(text: Text) -> Iterator[Section]:
    source, at = text.text, 0
    section: Section | None = None
    while at < len(source):
        line = source[at : line_end(source, at)]
        if (head := _SECTION.fullmatch(line)) is not None:
            if section is not None:
                yield section
            section = Section(head[1].partition(":")[2] or head[1].lower().removeprefix("service"))
        entry = _ENTRY.match(line)
        if entry is None or section is None:
            at = next_line(source, at)
            continue
        kept, at = _value(source, at + entry.end(), folds=entry[1] in _STARTS)
        src = "".join(source[place] for place in kept).replace("\n", " ")
        section.entries.append((entry[1], Script(text, src, kept)))
    if section is not None:
        yield section


def _value(source: str, start: int, *, folds: bool) -> tuple[list[int], int]:
    """The places of an entry's value, and where the line behind it starts.

    A backslash goes on with the next line, a comment in between left out; so does an indent where a value `folds`.
    """
    kept = list(range(start, line_end(source, start)))
    at = next_line(source, start)
    joined = _turns(source, kept)
    while at < len(source) and (joined or (folds and source[at] in " \t")):
        following = range(at, line_end(source, at))
        remark = source[at : at + 200].lstrip().startswith(("#", ";"))
        if not remark:
            if joined and _turns(source, kept):
                kept.pop()
            kept += [at - 1, *following]
            joined = _turns(source, kept)
        at = next_line(source, at)
    return kept, at


def _turns(source: str, kept: list[int]) -> bool:
    return bool(kept) and source[kept[-1]] == "\\"
