"""Makefiles: the servers that recipes start, with the variables that the file itself sets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perilune.errors import UnusableInput
from perilune.plan.sources.beside import Beside
from perilune.plan.sources.found import Note, Reading, Word
from perilune.plan.sources.launch import Surroundings, read_script
from perilune.plan.sources.mentions import starts
from perilune.plan.sources.pods import given
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text

_SET = re.compile(r"(?:export[ \t]+|override[ \t]+)*([A-Za-z_]\w*)[ \t]*(?:\?|::?)?=[ \t]*")
_RECIPE = re.compile(r"\t[ \t]*[@+-]*[ \t]*")
_ON_RULE = re.compile(r"[^\t#=:][^=:]*:(?!=)[^=;]*;[ \t]*[@+-]*")
_COMMENT = re.compile(r"(?<!\\)#")
_LETTER = re.compile(r"(?<!\$)(?:\$\$)*\$([A-Za-z_]\w*)")
_BRACES = re.compile(r"\$\{(\w+)\}")


def read_makefile(text: Text, beside: Beside | None = None) -> Reading:
    """Read the servers of every recipe line; a variable that the file does not set stays unknown."""
    around = Surroundings(text, "Makefile", beside=beside, settled=False)
    known: dict[str, Word] = {}
    for line in _lines(text):
        if (recipe := _RECIPE.match(line.src) or _ON_RULE.match(line.src)) is not None:
            _recipe(Script(text, line.src[recipe.end() :], line.at[recipe.end() :]), known, around)
        elif (found := _SET.match(line.src)) is not None:
            value = _COMMENT.split(line.src[found.end() :], maxsplit=1)[0].rstrip()
            places = tuple(line.at[found.end() : found.end() + len(value)])
            whole = bool(places) and places == tuple(range(places[0], places[0] + len(places)))
            at = places[0] if places else None
            word = Word(value, at, at if whole else None, places[-1] + 1 if places else 0, places=places)
            known[found[1]] = _filled(text, word, known)
            if found.group().startswith("export"):
                around.env = {**around.env, found[1]: known[found[1]]}
    return around.reading("Makefile", None)


def _recipe(script: Script, known: dict[str, Word], around: Surroundings) -> None:
    if not starts(script.src) and not starts(_filled(script.text, _word(script), known).text):
        return
    if (letter := _LETTER.search(script.src)) is not None:
        name = letter[1]
        message = (
            f"make reads ${name[:40]} as its own variable {name[0]} and the text behind it: the line is not checked."
        )
        fix = f"Write $${name[:40]} for the shell's, or $({name[:40]}) for make's."
        around.notes.append(Note(message, script.line(letter.start()), fix, unread=True))
        return
    word = _filled(script.text, _word(script), known)
    places = word.places if len(word.places) == len(word.text) else (word.at or 0,) * len(word.text)
    try:
        read_script(Script(script.text, word.text, places), around)
    except UnusableInput as problem:
        around.notes.append(Note(f"This line is not read: {problem.message}", script.line(0), unread=True))


def _word(script: Script) -> Word:
    return Word(script.src, script.offset(0), None, places=tuple(script.at))


def _filled(text: Text, word: Word, known: dict[str, Word]) -> Word:
    """The text as make hands it on: `$(NAME)` and `${NAME}` put in, `$$` a dollar; the rest is the shell's."""
    written = _BRACES.sub(lambda match: f"$({match[1]})", word.text)
    filled = given(text, Word(written, word.at, word.start, word.end, places=word.places), known)
    left = re.sub(r"\$\((\w+)\)", lambda match: f"${{{match[1]}}}", filled.text)
    return Word(left, filled.at, filled.start, filled.end, places=filled.places)


def _lines(text: Text) -> Iterator[Script]:
    """Every logical line, its continued ones joined by a blank."""
    source, at = text.text, 0
    while at < len(source):
        kept: list[int] = []
        while True:
            end = source.find("\n", at)
            end = len(source) if end < 0 else end
            line = range(at, end - 1 if source[end - 1 : end] == "\r" and end > at else end)
            at = end + 1
            if not line or source[line[-1]] != "\\" or at >= len(source):
                kept += line
                break
            kept += line
        src = "".join(source[place] for place in kept)
        src = re.sub(r"\\(?=[ \t]|$)", " ", src) if "\\" in src else src
        if src.strip():
            yield Script(text, src, tuple(kept))
