"""YAML as nodes with places: nothing is built from it, aliases stay shared, and comments stay in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from perilune.errors import UnusableInput
from perilune.plan.sources.align import aligned
from perilune.plan.sources.found import Word
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text
from perilune.plan.yaml_input import LOADER

MOST_DEPTH = 100
MOST_NODES = 400_000

Node = yaml.Node
Pair = tuple[yaml.ScalarNode, Node]


def documents(text: Text) -> list[Node]:
    """The root node of every document; raises UnusableInput naming the line of what is wrong."""
    try:
        _look_through(text)
        roots = [root for root in yaml.compose_all(text.text, Loader=LOADER) if root is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{text.name}, line {mark.line + 1}" if mark else text.name
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        template = "{{" in text.text
        raise UnusableInput(
            f"It cannot be read as YAML ({problem}).",
            where=place,
            fix="Render the template first (`helm template`), then check the result." if template else None,
        ) from None
    _refuse_twice(text, roots)
    return roots


def _refuse_twice(text: Text, roots: list[Node]) -> None:
    """A key that stands twice in one mapping: every reader takes another of the two, or neither."""
    stack, seen = list(roots), set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack += node.value
            continue
        lines: dict[str, int] = {}
        for key, value in pairs(node, merge=False):
            line = key.start_mark.line + 1
            if key.value in lines:
                message = f"The key {key.value[:60]} stands twice in one mapping (first in line {lines[key.value]})."
                raise UnusableInput(message, where=text.at_line(line), fix="Keep one of them.")
            lines[key.value] = line
            stack.append(value)


def _look_through(text: Text) -> None:
    depth = 0
    for nodes, event in enumerate(yaml.parse(text.text, Loader=LOADER)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH or nodes > MOST_NODES:
            what = f"nested more than {MOST_DEPTH} deep" if depth > MOST_DEPTH else f"over {MOST_NODES:,} values long"
            mark = event.start_mark
            raise UnusableInput(f"It is {what}.", where=f"{text.name}, line {mark.line + 1}" if mark else text.name)


def pairs(node: Node | None, *, merge: bool = True) -> Iterator[Pair]:
    """The entries of a mapping, with `merge` those of `<<` behind its own."""
    if not isinstance(node, yaml.MappingNode):
        return
    merged: list[Node] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.tag == "tag:yaml.org,2002:merge":
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        else:
            yield key, value
    for other in merged[:100] if merge else ():
        if isinstance(other, yaml.MappingNode) and other is not node:
            yield from ((k, v) for k, v in other.value if isinstance(k, yaml.ScalarNode))


def get(node: Node | None, *path: str) -> Node | None:
    """The value at a path of keys; None where there is none."""
    for name in path:
        node = next((value for key, value in pairs(node) if key.value == name), None)
        if node is None:
            return None
    return node


def scalar(node: Node | None) -> str | None:
    """The text of a scalar; None for anything else and for null."""
    if isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null"):
        return str(node.value)
    return None


def items(node: Node | None) -> list[Node]:
    """The items of a sequence; none for anything else."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def start_of(node: Node) -> int:
    """The first character of a node."""
    return int(node.start_mark.index)


def end_of(node: Node) -> int:
    """Just behind the last character of a node; a block ends with the last thing in it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def script_of(text: Text, node: yaml.ScalarNode) -> Script:
    """A scalar's value as shell text, each character with its place in the file."""
    start, end = start_of(node), int(node.end_mark.index)
    value = str(node.value)
    if node.style in ("|", ">"):
        start = text.text.find("\n", start) + 1
    elif node.style:
        start += 1
    if text.text.startswith(value, start) and start + len(value) <= end:
        return Script(text, value, range(start, start + len(value)))
    return Script(text, value, aligned(text.text[:end], value, start))


def word_of(text: Text, node: Node, *, entry: bool = False) -> Word | None:
    """A scalar as a word of an argument list, or as the value of an entry; None for other nodes."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    start, end = start_of(node), int(node.end_mark.index)
    block = node.style in ("|", ">")
    places = tuple(script_of(text, node).at)
    return Word(str(node.value), start, None if block else start, end, "entry" if entry else "item", places)


def plain(node: Node, depth: int = 0) -> Any:
    """A node's plain value; raises UnusableInput where it holds more than an argument can."""
    if depth > MOST_DEPTH:
        raise UnusableInput("It is nested too deeply.", where=f"line {node.start_mark.line + 1}")
    if isinstance(node, yaml.SequenceNode):
        return [plain(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {key.value: plain(value, depth + 1) for key, value in pairs(node)}
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        return str(node.value)
    finally:
        loader.dispose()
