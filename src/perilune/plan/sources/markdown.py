"""Markdown: the commands and manifests in its fenced blocks, each block a file of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from perilune.errors import UnusableInput
from perilune.plan.sources.beside import Beside
from perilune.plan.sources.excerpts import MOST_PARTS, excerpt
from perilune.plan.sources.found import Found, Note, Reading
from perilune.plan.sources.mentions import MENTION
from perilune.plan.sources.text import Text
from perilune.plan.sources.ways import Choice

MOST_EFFORT = 64_000_000  # characters blanked
_FENCE = re.compile(r"^[ \t>]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$", re.MULTILINE)
_PROMPT = re.compile(r"^[ \t]*(?:[$%](?=[ \t])|\S+@\S+[$#%](?=[ \t]))", re.MULTILINE)
_GOES_ON = re.compile(r"[ \t]*>(?=[ \t])")
_OPEN = re.compile(r"<[A-Za-z][^<>\n]*>")
_SHELL = frozenset({"", "bash", "sh", "shell", "zsh"})
_CONSOLE = frozenset({"console", "shell-session", "shellsession", "terminal", "shellscript"})
_YAML = frozenset({"yaml", "yml"})
_DOCKER = frozenset({"dockerfile", "docker"})
_ONLY_SHOWN = frozenset({"text", "txt", "plain", "plaintext", "log", "output", "diff", "mermaid"})


def read_markdown(text: Text, beside: Beside | None = None) -> Reading:
    """Read the blocks that name a server; what stands in other languages is said."""
    servers: list[Found] = []
    notes: list[Note] = []
    routers: list[tuple[str, ...]] = []
    named = [block for block in _blocks(text.text) if MENTION.search(text.text, block[1].start, block[1].stop)]
    if len(named) > MOST_PARTS or len(named) * len(text.text) > MOST_EFFORT:
        raise UnusableInput(f"Too many of its blocks name a server ({len(named):,}).", where=text.name)
    for number, (language, part) in enumerate(named):
        if language in _ONLY_SHOWN:
            notes.append(
                Note("The block of this line is text that is shown: it is not checked.", text.line(part.start))
            )
            continue
        try:
            reading = _read(language, text, part, beside)
        except UnusableInput as problem:
            told = f"The block of this line is not read: {problem.message}"
            notes.append(Note(told, text.line(part.start), problem.fix or "", unread=True))
            continue
        notes += reading.notes
        routers += reading.routers
        servers += (_placed(one, reading, number) for one in reading.servers)
    return Reading("Markdown", tuple(servers), tuple(notes), None, tuple(dict.fromkeys(routers)), text)


def _blocks(source: str) -> Iterator[tuple[str, range]]:
    """The language and the lines of every fenced block."""
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(source):
        if opened is None:
            opened = fence
        elif fence["mark"].startswith(opened["mark"]) and not fence["info"].strip():
            yield _language(opened["info"]), range(opened.end(), fence.start())
            opened = None
    if opened is not None:
        yield _language(opened["info"]), range(opened.end(), len(source))


def _language(info: str) -> str:
    words = info.strip().strip("{}").split(None, 1)
    return words[0].split("{")[0].lstrip(".").lower() if words else ""


def _read(language: str, text: Text, part: range, beside: Beside | None) -> Reading:
    if language in _YAML:
        from perilune.plan.sources.documents import read_documents

        return read_documents(excerpt(text, part), beside)
    if language in _DOCKER:
        from perilune.plan.sources.dockerfile import read_dockerfile

        return read_dockerfile(excerpt(text, part), beside)
    if language not in _SHELL | _CONSOLE:
        raise UnusableInput(f"It is {language[:20]}, neither shell nor YAML.", where=text.name)
    from perilune.plan.sources.read import read_commands

    typed = list(_typed(text.text, part)) if _PROMPT.search(text.text, part.start, part.stop) else [part]
    return read_commands(text, beside, typed)


def _typed(source: str, part: range) -> Iterator[range]:
    """What was typed behind the prompts of a session, with the lines that a backslash joins."""
    at, goes_on = part.start, False
    for line in source[part.start : part.stop].splitlines(keepends=True):
        prompt = _PROMPT.match(line) or (_GOES_ON.match(line) if goes_on else None)
        if prompt or goes_on:
            yield range(at + (prompt.end() if prompt else 0), at + len(line))
            goes_on = line.rstrip().endswith("\\")
        at += len(line)


def _placed(one: Found, reading: Reading, number: int) -> Found:
    """A server of one block, which runs with none of another's; what a reader is to fill in is no mistake."""
    ways = tuple({**way, "block": Choice(frozenset({str(number)}))} for way in one.ways)
    open_ = any(_OPEN.search(word.text) for word in (*one.words, *one.env.values()))
    return replace(one, kind="Markdown", ways=ways, host="", platform=reading.platform, composed=open_)
