"""Dockerfiles: ENTRYPOINT and CMD of the last stage, with its ENV."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from perilune.plan.sources.found import Note, Reading, Word
from perilune.plan.sources.inner import inner_script
from perilune.plan.sources.launch import Surroundings, add_command, read_script
from perilune.plan.sources.machines import platform_in
from perilune.plan.sources.read import unreached
from perilune.plan.sources.script import Script
from perilune.plan.sources.shell import Command
from perilune.plan.sources.text import Text
from perilune.plan.sources.words import Scope, words_of

_START = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXEC = re.compile(r"\[.*\]\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction and its arguments as a script whose characters are those of the file."""

    name: str
    script: Script
    start: int


def read_dockerfile(text: Text) -> Reading:
    """Read the server that an image starts."""
    around = Surroundings(text, "Dockerfile")
    env: dict[str, Word] = {}
    start: dict[str, Instruction] = {}
    for one in _instructions(text):
        if one.name == "FROM":
            words = [word for word in one.script.src.split() if not word.startswith("--")]
            around.image, env, start = words[0] if words else None, {}, {}
        elif one.name == "ENV":
            env |= _variables(one)
        elif one.name in ("ENTRYPOINT", "CMD"):
            start[one.name] = one
            if one.name == "ENTRYPOINT":
                start.pop("CMD", None)
    around.env = env
    _start(text, start, around)
    platform = platform_in(around.image or "")
    reading = around.reading("Dockerfile", platform)
    return reading.with_notes(*unreached(around))


def _start(text: Text, start: dict[str, Instruction], around: Surroundings) -> None:
    listed: list[Word] = []
    for one in (start[name] for name in ("ENTRYPOINT", "CMD") if name in start):
        words = _json_words(one)
        if words is None:  # a shell starts it, and takes no CMD after an ENTRYPOINT
            if not listed:
                read_script(one.script, around)
            elif one.script.src.strip():
                around.notes.append(Note("A CMD in shell form is not what ENTRYPOINT expects.", text.line(one.start)))
            return
        listed += words
    if not listed:
        return
    inside = inner_script(Script(text, "", ()), listed)
    last = max(word.end for word in listed)
    first = listed[0].at or 0
    if inside is not None:
        read_script(inside[1], around)
    else:
        add_command(Command(tuple(listed), dict(around.env), first, last), around, expands=False)


def _instructions(text: Text) -> Iterator[Instruction]:
    position, source = 0, text.text
    while position < len(source):
        end = _line_end(source, position)
        line = source[position:end]
        if not line.strip() or line.lstrip().startswith("#"):
            position = end + 1
            continue
        pieces = [(position, line)]
        while pieces[-1][1].rstrip().endswith("\\") and end < len(source):
            following = end + 1
            end = _line_end(source, following)
            line = source[following:end]
            comment = line.lstrip().startswith("#") or not line.strip()
            pieces.append((following, " " * max(len(line) - 1, 0) + "\\" if comment else line))
        whole = "\n".join(piece for _, piece in pieces)
        match = _START.match(whole)
        if match:
            at = position + match.end()
            yield Instruction(match[1].upper(), Script(text, whole[match.end() :], range(at, at + len(whole))), at)
        position = end + 1


def _line_end(source: str, position: int) -> int:
    end = source.find("\n", position)
    return len(source) if end < 0 else end


def _json_words(one: Instruction) -> list[Word] | None:
    """The words of the exec form; None for the shell form."""
    flat = one.script.src.replace("\\\r\n", "   ").replace("\\\n", "  ")
    if not _EXEC.fullmatch(flat):
        return None
    try:
        listed = json.loads(flat)
    except ValueError:
        return None
    matches = list(_STRING.finditer(flat))
    if not all(isinstance(item, str) for item in listed) or len(matches) != len(listed):
        return None
    words = []
    for item, match in zip(listed, matches, strict=True):
        at = one.script.offset(match.start())
        plain = match.group()[1:-1] == item
        places = tuple(range(at + 1, at + 1 + len(item))) if plain else ()
        words.append(Word(item, at, at, at + len(match.group()), "json", places))
    return words


def _variables(one: Instruction) -> dict[str, Word]:
    script = one.script
    if "=" not in script.src.split()[0] if script.src.split() else True:
        name, _, value = script.src.strip().partition(" ")
        index = script.src.find(value) if value else 0
        at = script.offset(index)
        return {name: Word(value.strip(), at, at, at + len(value.strip()))} if name else {}
    found: dict[str, Word] = {}
    scope = Scope()
    root = script.parse()
    stack = list(root.named_children)
    for node in stack:
        if node.type in ("variable_assignments", "command"):
            stack.extend(node.named_children)
        if node.type == "variable_assignment" and (target := node.child_by_field_name("name")):
            value_node = node.child_by_field_name("value")
            words = words_of(script, [value_node], scope) if value_node else [Word("")]
            found[script.of(target)] = replace(words[0]) if words else Word("")
    return found
