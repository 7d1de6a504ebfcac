"""Kubernetes: containers wherever a manifest has them, from a plain Pod to a LeaderWorkerSet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import yaml

from perilune.plan.sources.found import Found, Note, Word
from perilune.plan.sources.inner import inner_script
from perilune.plan.sources.launch import LAUNCHER, Surroundings, add_command, read_script
from perilune.plan.sources.nodes import Node, end_of, get, items, pairs, scalar, script_of, start_of, word_of
from perilune.plan.sources.script import Script
from perilune.plan.sources.shell import Command
from perilune.plan.sources.text import Text

_TEMPLATES = {"leaderTemplate": "leader", "workerTemplate": "worker"}
_PARTS = ("podTemplate", "leaderWorkerPattern", "standalonePattern", "spec")
_GIVEN = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")


@dataclass(frozen=True, slots=True)
class Container:
    """A container and what its manifest says of it: the role, and over how many nodes an operator spreads it."""

    node: Node
    role: str
    nodes: int


def read(text: Text, root: Node, around: Surroundings) -> None:
    """Add the servers of every container of a manifest, and of the scripts in a ConfigMap."""
    if around.kind == "ConfigMap":
        for key, value in pairs(get(root, "data")):
            if isinstance(value, yaml.ScalarNode) and LAUNCHER.search(value.value):
                read_script(script_of(text, value), around.of("script in a ConfigMap", str(key.value)))
    for container in _containers(root, around.name, 1, set()):
        _read_container(text, container, replace(around, given=_group(container, root)))


def _group(container: Container, root: Node) -> dict[str, Word]:
    """What the pods of a LeaderWorkerSet are told of their group."""
    size = scalar(get(root, "spec", "leaderWorkerTemplate", "size"))
    if size is None:
        return {}
    leads = container.role.endswith(" leader")
    return {"LWS_GROUP_SIZE": Word(size)} | ({"LWS_WORKER_INDEX": Word("0")} if leads else {})


def _containers(node: Node, role: str, nodes: int, seen: set[int]) -> Iterator[Container]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _containers(item, _part(item, role), _nodes(item, nodes), seen)
        return
    for key, value in pairs(node):
        if key.value == "containers":
            for item in items(value):
                yield Container(item, role, nodes)
        elif key.value == "mainContainer":
            yield Container(value, role, nodes)
        elif isinstance(value, yaml.CollectionNode):
            inner = _joined(role, _TEMPLATES[key.value]) if key.value in _TEMPLATES else role
            if get(value, "componentType") is not None or get(value, "extraPodSpec") is not None:
                inner = key.value  # services of a DynamoGraphDeployment
            yield from _containers(value, inner, _nodes(value, nodes), seen)


def _part(item: Node, role: str) -> str:
    """The name of a component or role in a list of them."""
    name = scalar(get(item, "name"))
    return name if name and any(get(item, key) is not None for key in _PARTS) else role


def _nodes(node: Node, otherwise: int) -> int:
    count = scalar(get(node, "multinode", "nodeCount")) or ""
    return int(count) if re.fullmatch(r"[1-9]\d{0,3}", count) else otherwise


def _joined(name: str, part: str) -> str:
    return f"{name} {part}".strip()


def _read_container(text: Text, container: Container, outer: Surroundings) -> None:
    node = container.node
    around = outer.of(outer.kind, container.role, scalar(get(node, "image")))
    around.env, around.env_tail = _env(text, node)
    parts = [item for key in ("command", "args") for item in items(get(node, key))]
    words = tuple(_given(word, around) for item in parts if (word := word_of(text, item)) is not None)
    if not words or len(words) != len(parts):
        return
    before = len(around.found)
    inside = inner_script(Script(text, "", ()), words)
    if inside is not None:
        read_inner(text, parts, words, around)
    else:
        last = end_of(parts[-1])
        add_command(Command(words, dict(around.env), start_of(parts[0]), last), around, expands=False)
    if len(around.found) == before:
        return
    for place in items(get(node, "envFrom"))[:1]:
        message = "Variables from `envFrom` are not known here."
        around.notes.append(Note(message, text.line(start_of(place))))
    if container.nodes > 1:
        around.found[before:] = [_spread(found, container.nodes) for found in around.found[before:]]


def read_inner(text: Text, parts: Sequence[Node], words: Sequence[Word], around: Surroundings) -> None:
    """Add what `sh -c TEXT` starts, where TEXT is one of the items of a list."""
    for item, word in zip(parts, words, strict=True):
        if isinstance(item, yaml.ScalarNode) and len(word.text.split()) > 1:
            read_script(script_of(text, item), around)


def _spread(found: Found, nodes: int) -> Found:
    """The server as the operator starts it: on several nodes."""
    if found.server.has("--nnodes"):
        return found
    given = ("--nnodes", str(nodes), "--node-rank", "0", "--dist-init-addr", "$(LEADER):29500")
    server = replace(found.server, argv=(*found.server.argv, *given))
    return replace(found, server=server, words=(*found.words, *(Word(text, style="item") for text in given)))


def _env(text: Text, node: Node) -> tuple[dict[str, Word], Word | None]:
    """The variables of a container, and the last entry of their list."""
    found: dict[str, Word] = {}
    tail = None
    for item in items(get(node, "env")) + items(get(node, "envs")):
        name, value = scalar(get(item, "name")), get(item, "value")
        tail = Word("", start_of(item), start_of(item), end_of(item), "entry")
        if name is None:
            continue
        word = word_of(text, value, entry=True) if value is not None else None
        found[name] = word or Word(f"$({name})", start_of(item), None)  # valueFrom: known to the cluster only
    return found, tail


def _given(word: Word, around: Surroundings) -> Word:
    """An item with the `$(NAME)` that Kubernetes replaces from the container's own variables."""
    known = {**around.env, **around.given}
    whole = _GIVEN.fullmatch(word.text)
    if whole and whole[1] in around.env and whole[1] not in around.given:
        return replace(around.env[whole[1]], style="entry")
    text = _GIVEN.sub(lambda m: known[m[1]].text if m[1] in known else m[0], word.text)
    if text == word.text:
        return word
    return replace(word, text=text, start=word.start if whole else None, places=())
