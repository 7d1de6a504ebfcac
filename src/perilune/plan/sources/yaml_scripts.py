"""Commands in YAML that is none of the known forms: the steps of a workflow, a playbook, a task of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import yaml

from perilune.errors import UnusableInput
from perilune.plan.sources.found import Note, Word
from perilune.plan.sources.launch import Surroundings, add_command, read_script
from perilune.plan.sources.mentions import MENTION, starts
from perilune.plan.sources.nodes import Node, end_of, items, pairs, script_of, start_of, word_of
from perilune.plan.sources.shell import Command
from perilune.plan.sources.text import Text

_PROSE = frozenset(
    {"description", "help", "message", "title", "summary", "name", "usage", "note", "comment", "annotations", "labels"}
)
_TEMPLATE = re.compile(r"(?<!\$)\{\{|\{%")


def read(text: Text, roots: Sequence[Node], around: Surroundings) -> None:
    """Add the servers of shell text and of lists of words wherever they stand and were not looked at."""
    part = around.of("script in YAML", "")
    seen: set[int] = set()
    for root in roots:
        for node in _values(root, seen):
            start, end = start_of(node), end_of(node)
            if any(first < end and start <= last for first, last in around.seen):
                continue
            if isinstance(node, yaml.ScalarNode):
                _script(text, node, part)
            else:
                _list(text, node, part)


def _values(node: Node, seen: set[int]) -> Iterator[Node]:
    """Every text that would start a server, and every list of words that names one."""
    stack = [node]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, yaml.ScalarNode):
            yield from [one] if "sglang" in one.value and starts(one.value) else []
            continue
        listed = items(one)
        if len(listed) > 1 and all(isinstance(item, yaml.ScalarNode) for item in listed):
            texts = [str(item.value) for item in listed]
            if MENTION.search(" ".join(texts[:8])) and not any(" " in text and starts(text) for text in texts):
                yield one
                continue
        stack += reversed(listed or [value for key, value in pairs(one) if key.value not in _PROSE])


def _script(text: Text, node: yaml.ScalarNode, part: Surroundings) -> None:
    before = len(part.found)
    why = "the words of a template are put in first" if _TEMPLATE.search(node.value) else ""
    try:
        if not why:
            read_script(script_of(text, node), part)
            why = "" if len(part.found) > before else "it is in a form that cannot be read"
    except UnusableInput as problem:
        why = problem.message.rstrip(".")
    if why:
        part.notes.append(
            Note(f"The command in this text is not checked: {why}.", text.line(start_of(node)), unread=True)
        )


def _list(text: Text, node: Node, part: Surroundings) -> None:
    words: list[Word] = [word for item in items(node) if (word := word_of(text, item)) is not None]
    add_command(Command(tuple(words), {}, start_of(node), end_of(node) - 1), part, expands=False)
