"""Dockerfiles: what ENTRYPOINT and CMD of the last stage start, with ARG and ENV as the builder knows them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace

from perilune.plan.sources.beside import Beside
from perilune.plan.sources.found import Note, Reading, Word
from perilune.plan.sources.inner import inner_script
from perilune.plan.sources.instructions import Instruction, instructions
from perilune.plan.sources.launch import Surroundings, add_command, read_script
from perilune.plan.sources.machines import platform_in
from perilune.plan.sources.mentions import LAUNCHER
from perilune.plan.sources.read import unreached
from perilune.plan.sources.script import Script
from perilune.plan.sources.shell import Command
from perilune.plan.sources.text import Text
from perilune.plan.sources.words import Piece, Scope, words_of

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXEC = re.compile(r"\[.*\]\s*", re.DOTALL)
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")


@dataclass
class Stage:
    """A stage as it is built: its image, the variables that stay in it, those of the build, and what it starts."""

    image: str | None = None
    image_at: int | None = None
    env: dict[str, Word] = field(default_factory=dict)
    args: dict[str, Word] = field(default_factory=dict)
    start: dict[str, Instruction] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)

    def scope(self) -> Scope:
        """What an instruction of the build can put in for a name: ENV before ARG."""
        known = {**self.args, **self.env}
        return Scope({name: Piece(word.text, _places(word), word.start, word.end) for name, word in known.items()})


def read_dockerfile(text: Text, beside: Beside | None = None) -> Reading:
    """Read the server that an image starts."""
    around = Surroundings(text, "Dockerfile", beside=beside, settled=False)
    outside = Stage()  # ARG in front of the first FROM
    stages: dict[str, Stage] = {}
    stage = outside
    for one in instructions(text):
        if one.name == "FROM":
            stage = _from(one, outside, stages)
        elif one.name == "ENV":
            stage.env |= _variables(one, stage.scope())
        elif one.name == "ARG":
            _declare(one, stage, outside)
        elif one.name in ("ENTRYPOINT", "CMD"):
            stage.start[one.name] = one
            stage.own.add(one.name)
            if one.name == "ENTRYPOINT" and "CMD" not in stage.own:
                stage.start.pop("CMD", None)  # that of the image below
        for document in one.documents:
            if LAUNCHER.search(document.src):
                read_script(document, around.of("script in a Dockerfile", ""))
    around.env, around.image, around.image_at = stage.env, stage.image, stage.image_at
    _start(text, stage, around)
    platform = platform_in(around.image or "")
    reading = around.reading("Dockerfile", platform)
    return reading.with_notes(*unreached(around))


def _from(one: Instruction, outside: Stage, stages: dict[str, Stage]) -> Stage:
    words = [word for word in _words(one, outside.scope()) if not word.text.startswith("--")]
    stage = Stage(words[0].text, words[0].at) if words else Stage()
    below = stages.get((stage.image or "").lower())
    if below is not None:
        stage = Stage(below.image, below.image_at, dict(below.env), start=dict(below.start))
    if len(words) > 2 and words[1].text.upper() == "AS":
        stages[words[2].text.lower()] = stage
    return stage


def _declare(one: Instruction, stage: Stage, outside: Stage) -> None:
    """ARG: a default, or the one from in front of the first FROM; without either nothing is known."""
    stage.args |= _assigned(one.script, stage.scope())
    for word in _words(one, stage.scope()):
        if "=" not in word.text and word.text in outside.args:
            stage.args[word.text] = outside.args[word.text]


def _start(text: Text, stage: Stage, around: Surroundings) -> None:
    listed: list[Word] = []
    for one in (stage.start[name] for name in ("ENTRYPOINT", "CMD") if name in stage.start):
        words = _json_words(one)
        if words is None:  # a shell starts it, and takes no CMD after an ENTRYPOINT
            if not listed:
                read_script(one.script, around)
                _build_only(text, one, stage, around)
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
        _build_only(text, next(iter(stage.start.values())), stage, around)
    else:
        add_command(Command(tuple(listed), dict(around.env), first, last), around, expands=False)


def _build_only(text: Text, one: Instruction, stage: Stage, around: Surroundings) -> None:
    """Names that only the build knows, where a shell looks for them when the container runs."""
    asked = dict.fromkeys(_NAME.findall(one.script.src))
    for name in asked if around.found else ():
        if name in stage.args and name not in stage.env:
            message = f"{name} is set while the image is built only: when it runs, ${name} is empty unless it is given."
            fix = f"Write ENV {name}=${name} below the ARG."
            around.notes.append(Note(message, text.line(one.start), fix, "docker-arg"))


def _json_words(one: Instruction) -> list[Word] | None:
    """The words of the exec form, in which nothing is expanded; None for the shell form."""
    source = one.script.src.strip()
    if not _EXEC.fullmatch(source):
        return None
    try:
        listed = json.loads(source)
    except (ValueError, RecursionError):
        return None
    matches = list(_STRING.finditer(one.script.src))
    if not all(isinstance(item, str) for item in listed) or len(matches) != len(listed):
        return None
    words = []
    for item, match in zip(listed, matches, strict=True):
        plain = match.group()[1:-1] == item
        inner = range(match.start() + 1, match.end() - 1)
        places = tuple(one.script.offset(index) for index in inner) if plain else ()
        at, last = one.script.offset(match.start()), one.script.offset(match.end() - 1)
        words.append(Word(item, at, at, last + 1, "json", places))
    return words


def _variables(one: Instruction, scope: Scope) -> dict[str, Word]:
    """What ENV sets; every value is put together from what was known before the instruction."""
    first = one.script.src.split(None, 1)[:1]
    if not first:
        return {}
    if "=" not in first[0]:
        name = first[0]
        start = one.script.src.index(name) + len(name)
        while start < len(one.script.src) and one.script.src[start].isspace():
            start += 1
        script = Script(one.script.text, one.script.src[start:].rstrip(), one.script.at[start:])
        words = words_of(script, list(script.loose_words()), scope)
        whole = " ".join(word.text for word in words)
        single = words[0] if len(words) == 1 else Word(whole, script.offset(0))
        return {name: replace(single, style="shell")}
    return _assigned(one.script, scope)


def _assigned(script: Script, scope: Scope) -> dict[str, Word]:
    """What the NAME=VALUE words of an instruction set."""
    found: dict[str, Word] = {}
    stack = list(script.parse().named_children)
    for node in stack:
        if node.type in ("variable_assignments", "command"):
            stack.extend(node.named_children)
        if node.type == "variable_assignment" and (target := node.child_by_field_name("name")):
            value = node.child_by_field_name("value")
            words = words_of(script, [value], scope) if value else []
            found[script.of(target)] = words[0] if words else Word("")
    return found


def _words(one: Instruction, scope: Scope) -> list[Word]:
    """The words of an instruction, its variables in."""
    return words_of(one.script, list(one.script.loose_words()), scope)


def _places(word: Word) -> tuple[int, ...]:
    return word.places if len(word.places) == len(word.text) else (word.at or 0,) * len(word.text)
