"""Kubernetes: containers wherever a manifest has them, from a plain Pod to a LeaderWorkerSet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from perilune.errors import UnusableInput
from perilune.plan.sources.found import Found, Note, Word
from perilune.plan.sources.inner import inner_script
from perilune.plan.sources.launch import Surroundings, add_command, read_script
from perilune.plan.sources.mentions import LAUNCHER
from perilune.plan.sources.nodes import Node, end_of, get, items, pairs, scalar, script_of, start_of, word_of
from perilune.plan.sources.pod_setting import labels_of, settings, unreached
from perilune.plan.sources.script import Script
from perilune.plan.sources.shell import Command
from perilune.plan.sources.text import Text
from perilune.plan.sources.words import MOST_EXPANDED

_TEMPLATES = {"leaderTemplate": "leader", "workerTemplate": "worker"}
_PARTS = ("podTemplate", "leaderWorkerPattern", "standalonePattern", "spec")
_GIVEN = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_ACCELERATOR = re.compile(r"^(nvidia\.com/(gpu|mig-.*)|amd\.com/gpu|huawei\.com/ascend.*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Container:
    """A container and what its manifest says of it: the pod around it, the role, the nodes that an
    operator spreads it over, the GPUs of each, and where its pod stands.
    """

    node: Node
    spec: Node
    role: str
    nodes: int
    gpus: int | None
    pod: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The nodes of a service and the GPUs on each, as an operator's own fields around the container say."""

    nodes: int = 1
    gpus: int | None = None

    def of(self, node: Node) -> Shape:
        """The same inside another node."""
        nodes = _whole(scalar(get(node, "multinode", "nodeCount")))
        return Shape(nodes or self.nodes, _whole(scalar(get(node, "resources", "limits", "gpu"))) or self.gpus)


def read(text: Text, root: Node, around: Surroundings, services: Sequence[Node] = ()) -> None:
    """Add the servers of every container of a manifest, and of the scripts in a ConfigMap.

    `services` are the Services that stand beside it, of which some may send to it.
    """
    if around.kind == "ConfigMap":
        for key, value in pairs(get(root, "data")):
            if isinstance(value, yaml.ScalarNode) and LAUNCHER.search(value.value):
                read_script(script_of(text, value), around.of("script in a ConfigMap", str(key.value)))
    size = scalar(get(root, "spec", "leaderWorkerTemplate", "size"))
    containers = list(_containers(root, around.name, Shape(), set()))
    for container in containers:
        nodes = container.nodes if container.nodes > 1 else _whole(size)
        host = f"the pod {container.role or around.name or around.kind} (line {text.line(container.pod)})"
        part = replace(around, given=_group(container, size), group_size=nodes, host=host)
        _read_container(text, container, part, services if len(containers) == 1 else (), labels_of(root))


def _group(container: Container, size: str | None) -> dict[str, Word]:
    """What the pods of a LeaderWorkerSet are told of their group."""
    if size is None:
        return {}
    leads = container.role.split()[-1:] == ["leader"]
    return {"LWS_GROUP_SIZE": Word(size)} | ({"LWS_WORKER_INDEX": Word("0")} if leads else {})


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[1-9]\d{0,3}", text) else None


def _containers(node: Node, role: str, shape: Shape, seen: set[int]) -> Iterator[Container]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _containers(item, _part(item, role), shape.of(item), seen)
        return
    for key, value in pairs(node):
        if key.value == "containers":
            for item in items(value):
                yield Container(item, node, role, shape.nodes, shape.gpus, start_of(key))
        elif key.value == "mainContainer":
            yield Container(value, node, role, shape.nodes, shape.gpus, start_of(key))
        elif isinstance(value, yaml.CollectionNode):
            inner = _joined(role, _TEMPLATES[key.value]) if key.value in _TEMPLATES else role
            if get(value, "componentType") is not None or get(value, "extraPodSpec") is not None:
                inner = key.value  # services of a DynamoGraphDeployment
            yield from _containers(value, inner, shape.of(value), seen)


def _part(item: Node, role: str) -> str:
    """The name of a component or role in a list of them."""
    name = scalar(get(item, "name"))
    return name if name and any(get(item, key) is not None for key in _PARTS) else role


def _joined(name: str, part: str) -> str:
    return f"{name} {part}".strip()


def _read_container(
    text: Text, container: Container, outer: Surroundings, services: Sequence[Node], labels: Mapping[str, str]
) -> None:
    node = container.node
    image = get(node, "image")
    around = outer.of(outer.kind, container.role, scalar(image), start_of(image) if image is not None else None)
    around.env, around.env_tail = _env(text, node, around.given)
    around.gpus_visible = _gpus(node) or container.gpus
    around.foreign = bool(items(get(node, "envFrom")))
    parts = [item for key in ("command", "args") for item in items(get(node, key))]
    known = {**around.env, **around.given}
    words = tuple(
        replace(given(text, word, known), style="entry") if _stands_for(word, around) else given(text, word, known)
        for item in parts
        if (word := word_of(text, item)) is not None
    )
    if not words or len(words) != len(parts):
        return
    before = len(around.found)
    span = (start_of(parts[0]), end_of(parts[-1]))
    start_words(text, words, span, around)
    if len(around.found) == before:
        return
    if len(around.found) == before + 1:
        (found,) = around.found[before:]
        around.notes += settings(text, container.spec, node, found)
        sent = (unreached(text, service, labels, node, found) for service in services)
        around.notes += [note for note in sent if note is not None]
    for place in items(get(node, "envFrom"))[:1]:
        message = "Variables from `envFrom` are not known here."
        around.notes.append(Note(message, text.line(start_of(place))))
    if container.nodes > 1:
        around.found[before:] = [_spread(found, container.nodes) for found in around.found[before:]]


def start_words(text: Text, words: tuple[Word, ...], span: tuple[int, int], around: Surroundings) -> None:
    """Add what a list of words starts, itself or through the shell in it; say what stands there and is not read."""
    before, passed = len(around.found), len(around.seen)
    inside = inner_script(Script(text, "", ()), words)
    if inside is not None:
        read_script(inside[1], around)
    else:
        add_command(Command(words, dict(around.env), *span), around, expands=False)
    if len(around.found) > before or len(around.seen) > passed:
        return
    if words[0].text.startswith("-") and any(word.text.partition("=")[0] == "--model-path" for word in words):
        said = "The image's own entrypoint is given these flags: what that starts is not known, and not checked."
        fix = "Write the program too: sglang serve."
        around.notes.append(Note(said, text.line(span[0]), fix, unread=True))
        return
    for word in words:
        if (match := LAUNCHER.search(word.text)) is not None:
            said = f"`{' '.join(match.group().split())}` stands here in a form that cannot be read: it is not checked."
            around.notes.append(Note(said, text.line(word.at or span[0]), unread=True))
            around.seen.append(span)
            return


def _gpus(node: Node) -> int | None:
    """How many accelerators a container may use."""
    for key, value in [*pairs(get(node, "resources", "limits")), *pairs(get(node, "resources", "requests"))]:
        if _ACCELERATOR.search(str(key.value)) and (count := _whole(scalar(value))) is not None:
            return count
    return None


def _spread(found: Found, nodes: int) -> Found:
    """The server as the operator starts it: on several nodes."""
    if found.server.has("--nnodes"):
        return found
    given = ("--nnodes", str(nodes), "--node-rank", "0", "--dist-init-addr", "$(LEADER):29500")
    server = replace(found.server, argv=(*found.server.argv, *given))
    return replace(found, server=server, words=(*found.words, *(Word(text, style="item") for text in given)))


def _env(text: Text, node: Node, outside: Mapping[str, Word]) -> tuple[dict[str, Word], Word | None]:
    """The variables of a container, each with those before it in, and the last entry of their list."""
    found: dict[str, Word] = {}
    tail = None
    for item in items(get(node, "env")) + items(get(node, "envs")):
        name, value = scalar(get(item, "name")), get(item, "value")
        tail = Word("", start_of(item), start_of(item), end_of(item), "entry")
        if name is None:
            continue
        word = word_of(text, value, entry=True) if value is not None else None
        known = given(text, word, {**outside, **found}) if word else None
        found[name] = known or Word(f"$({name})", start_of(item), None)  # valueFrom: known to the cluster only
    return found, tail


def _stands_for(word: Word, around: Surroundings) -> bool:
    """Whether an item is one of the container's variables and nothing else, to be changed where that is set."""
    whole = _GIVEN.fullmatch(word.text)
    return bool(whole and whole[1] in around.env and whole[1] not in around.given)


def given(text: Text, word: Word, known: Mapping[str, Word]) -> Word:
    """A text with the `$(NAME)` in it that the kubelet replaces from the container's variables, before any shell.

    `$$` is the text `$`; a name that is not known stays. Raises UnusableInput where variables within variables
    grow past any command line.
    """
    whole = _GIVEN.fullmatch(word.text)
    if whole and whole[1] in known and known[whole[1]].start is not None:
        return known[whole[1]]
    own = len(word.places) == len(word.text)
    filled, places, at = "", list[int](), 0
    for match in _GIVEN.finditer(word.text):
        put = known.get(match[1] or "")
        if match[1] is not None and (put is None or put.text == match.group()):
            continue
        if put is None:  # $$
            put = Word("$")
        here = word.places[match.start()] if own else word.at or 0
        same = len(put.places) == len(put.text)
        where = put.places if same else (here,) * len(put.text)
        filled += word.text[at : match.start()] + put.text
        if len(filled) > MOST_EXPANDED:
            raise UnusableInput(
                f"Its variables grow to more than {MOST_EXPANDED >> 10} KiB here.", where=text.at(word.at or 0)
            )
        places += [*word.places[at : match.start()], *where] if own else []
        at = match.end()
    if at == 0:
        return word
    filled += word.text[at:]
    places += word.places[at:] if own else ()
    return replace(word, text=filled, start=None if len(filled.split()) > 1 else word.start, places=tuple(places))
