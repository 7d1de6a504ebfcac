"""SGLang's own `--config` YAML: a mapping of flags, as a file or inside a ConfigMap."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from perilune.errors import UnusableInput
from perilune.plan.resolve.config_file import as_words
from perilune.plan.resolve.state import Rejected
from perilune.plan.server import Server
from perilune.plan.sources.found import Found, Note, Word
from perilune.plan.sources.launch import Surroundings
from perilune.plan.sources.nodes import Node, documents, end_of, get, pairs, plain, scalar, script_of, start_of
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text


def read(text: Text, root: Node, around: Surroundings) -> None:
    """Add the flags that a `--config` file holds, which may be all of a server's or some."""
    words = flags(text, root, around.notes)
    argv = tuple(word.text for word in words)
    around.found.append(Found(Server(argv, program=()), "config file", text.line(start_of(root)), words=words))


def flags_of(text: Text, notes: list[Note]) -> tuple[Word, ...]:
    """The words of a whole `--config` file, none of them with a place in the command's own text.

    Raises UnusableInput where it is not one mapping of flags.
    """
    roots = documents(text)
    if len(roots) > 1 or not all(isinstance(root, yaml.MappingNode) for root in roots):
        raise UnusableInput("It is no mapping of flags.", where=text.name)
    return tuple(Word(word.text) for root in roots for word in flags(text, root, notes))


def flags(text: Text, root: Node, notes: list[Note], inside: Script | None = None) -> tuple[Word, ...]:
    """The words that the entries of a mapping stand for; what the engine refuses there goes to `notes`.

    `inside` is the text that the mapping was read from, when that stands in another file.
    """
    found: list[Word] = []
    for key, value in pairs(root):
        name = str(key.value)
        first, last = _span(key, inside)[0], _span(value, inside)[1]
        try:
            words = list(as_words({name: plain(value)}))
        except Rejected as rejected:
            message = f"The engine does not start: {rejected}."
            fix = "Write it on the command line instead."
            notes.append(Note(message, text.line(first), fix, "config-refused", "error"))
            continue
        start, end = _span(value, inside)
        whole = isinstance(value, yaml.ScalarNode) and value.style not in ("|", ">")
        for index, word in enumerate(words):
            if index == 0:
                found.append(Word(word, first, first, last, "entry"))
            else:
                found.append(Word(word, start, start if whole else None, end, "entry"))
    return tuple(found)


def _span(node: Node, inside: Script | None) -> tuple[int, int]:
    """Where a node starts in the file, and where it ends."""
    start, end = start_of(node), end_of(node)
    return (start, end) if inside is None else (inside.offset(start), inside.offset(max(end - 1, start)) + 1)


def in_config_map(text: Text, root: Node, around: Surroundings) -> Iterator[tuple[str, tuple[Word, ...]]]:
    """The `--config` files that a ConfigMap holds, by name."""
    if scalar(get(root, "kind")) != "ConfigMap":
        return
    for key, value in pairs(get(root, "data")):
        if not str(key.value).endswith((".yaml", ".yml")) or not isinstance(value, yaml.ScalarNode):
            continue
        script = script_of(text, value)
        try:
            inner = documents(Text(text.at(start_of(value)), script.src))
        except UnusableInput as error:
            around.notes.append(Note(f"{key.value} in a ConfigMap: {error.message}", text.line(start_of(value))))
            continue
        if len(inner) == 1 and isinstance(inner[0], yaml.MappingNode):
            yield str(key.value), flags(text, inner[0], around.notes, script)
