"""docker compose: the entrypoint and command of every service."""

from __future__ import annotations

import re
from dataclasses import replace

import yaml

from perilune.plan.sources.env_files import tell_unread
from perilune.plan.sources.found import Word
from perilune.plan.sources.inner import inner_script
from perilune.plan.sources.launch import Surroundings
from perilune.plan.sources.nodes import Node, end_of, get, items, pairs, scalar, script_of, start_of, word_of
from perilune.plan.sources.pods import start_words
from perilune.plan.sources.script import Script
from perilune.plan.sources.text import Text
from perilune.plan.sources.ways import Choice
from perilune.plan.sources.words import Scope, words_of

_DEFAULT = re.compile(r"\$(\$)|\$\{\w+:?-([\w./:@%+,=-]*)\}")


def read(text: Text, root: Node, outer: Surroundings) -> None:
    """Add the server of every service."""
    for key, service in pairs(get(root, "services")):
        image = get(service, "image")
        place = start_of(image) if image is not None else None
        around = outer.of("compose service", str(key.value), scalar(image), place)
        around.env, around.env_tail = _environment(text, get(service, "environment"))
        around.way = _profiles(service)
        around.host_expands = True
        around.host = "the host" if scalar(get(service, "network_mode")) == "host" else ""
        around.gpus_visible = _gpus(service)
        parts: list[Node] = []
        words: list[Word] = []
        for name in ("entrypoint", "command"):
            node = get(service, name)
            for item in items(node):
                if (word := word_of(text, item)) is not None:
                    parts.append(item)
                    words.append(_interpolated(word))
            if isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null"):
                split = _split(script_of(text, node))
                parts += [node] * len(split)
                words += map(_interpolated, split)
        if not words:
            continue
        span = (start_of(parts[0]), max(end_of(part) for part in parts))
        if inner_script(Script(text, "", ()), words) is not None:
            around.seen.append(span)
        first = len(outer.found)
        files = get(service, "env_file")
        around.foreign = files is not None
        start_words(text, tuple(words), span, around)
        outer.found[first:] = [replace(found, expands=True) for found in outer.found[first:]]  # the host's variables
        if files is not None and len(outer.found) > first:
            named = [scalar(file) or scalar(get(file, "path")) or "it" for file in items(files) or [files]]
            tell_unread(named, outer, start_of(files))


def _profiles(service: Node) -> dict[str, Choice]:
    """The profiles that start a service: services of different ones are alternatives."""
    names = frozenset(name for item in items(get(service, "profiles")) if (name := scalar(item)))
    return {"profile": Choice(names)} if names else {}


def _gpus(service: Node) -> int | None:
    """How many GPUs are reserved for a service."""
    for device in items(get(service, "deploy", "resources", "reservations", "devices")):
        ids, count = items(get(device, "device_ids")), scalar(get(device, "count"))
        if ids or (count or "").isdigit():
            return len(ids) or int(count or 0) or None
    return None


def _interpolated(word: Word) -> Word:
    """A value with `$` for `$$` and the default for `${NAME:-DEFAULT}`, as compose has it where nobody sets NAME."""
    filled, places, at, own = "", list[int](), 0, len(word.places) == len(word.text)
    for match in _DEFAULT.finditer(word.text):
        first, end = match.span(match.lastindex or 0)
        filled += word.text[at : match.start()] + word.text[first:end]
        places += [*word.places[at : match.start()], *word.places[first:end]] if own else []
        at = match.end()
    if at == 0:
        return word
    filled += word.text[at:]
    places += word.places[at:] if own else ()
    whole = bool(places) and places == list(range(places[0], places[0] + len(places)))
    start, last = (places[0], places[-1] + 1) if whole else (None, word.end)
    return Word(filled, places[0] if places else word.at, start, last, "shell", tuple(places), sure=False)


def _split(script: Script) -> list[Word]:
    """The words of a command string; line ends only separate them."""
    flat = Script(script.text, script.src.replace("\\\n", "  ").replace("\n", " "), script.at)
    root = flat.parse()
    nodes = [child for command in root.named_children for child in command.named_children]
    if root.has_error or any(child.type not in ("command", "comment") for child in root.named_children):
        return [Word(script.src, script.offset(0))]
    nodes = [node.named_children[0] if node.type == "command_name" else node for node in nodes]
    return words_of(flat, nodes, Scope())


def _environment(text: Text, node: Node | None) -> tuple[dict[str, Word], Word | None]:
    """The variables of a service, written as a mapping or as NAME=VALUE items."""
    found: dict[str, Word] = {}
    tail = None
    for key, value in pairs(node):
        tail = Word("", start_of(key), start_of(key), end_of(value), "entry")
        if (word := word_of(text, value, entry=True)) is not None:
            found[str(key.value)] = _interpolated(word)
    for item in items(node):
        written = scalar(item) or ""
        name, equals, value_text = written.partition("=")
        tail = Word("", start_of(item), start_of(item), end_of(item), "item")
        if equals:
            places = tuple(script_of(text, item).at)[len(name) + 1 :] if isinstance(item, yaml.ScalarNode) else ()
            whole = bool(places) and places == tuple(range(places[0], places[0] + len(places)))
            found[name] = Word(
                value_text, places[0] if places else start_of(item), places[0] if whole else None,
                places[-1] + 1 if places else 0, "shell", places,
            )  # fmt: skip
    return found, tail
