"""YAML documents: Kubernetes manifests, compose files, recipes and `--config` files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import yaml

from perilune.facts.flags import options
from perilune.plan.sources import compose_file, config, pods, recipe, yaml_scripts
from perilune.plan.sources.beside import Beside
from perilune.plan.sources.found import Reading
from perilune.plan.sources.launch import Surroundings
from perilune.plan.sources.machines import platform_in
from perilune.plan.sources.nodes import Node, documents, get, pairs, scalar
from perilune.plan.sources.read import unreached
from perilune.plan.sources.text import NoServer, Text
from perilune.plan.sources.ways import Choice

_ROLES = frozenset({"prefill", "decode"})
_WHOLE = frozenset({"compose file", "srt-slurm recipe", "config file"})  # all that starts a server there is known
_LABELS = frozenset(
    {
        "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name", "gpu_type",
        "node.kubernetes.io/instance-type-gpu", "gpu.nvidia.com/model", "accelerators",
    }
)  # fmt: skip


def read_documents(text: Text, beside: Beside | None = None) -> Reading:
    """Read every document of a YAML file; raises UnusableInput where it is no YAML or none of those."""
    roots = documents(text)
    around = Surroundings(text, "YAML file", beside=beside)
    fleets = fleets_of([scalar(get(root, "metadata", "name")) or "" for root in roots])
    kinds: list[str] = []
    others: list[Node] = []
    around.configs = {name: words for root in roots for name, words in config.in_config_map(text, root, around)}
    services = [root for root in roots if scalar(get(root, "kind")) == "Service"]
    for root in roots:
        kind, before = _kind(root), len(around.found)
        if kind == "compose file":
            compose_file.read(text, root, around)
        elif kind == "srt-slurm recipe":
            recipe.read(text, root, around)
        elif kind == "config file":
            config.read(text, root, around)
        elif kind:
            name = scalar(get(root, "metadata", "name")) or ""
            way = _apart(root, kind, name, fleets)
            pods.read(text, root, replace(around.of(kind, name), way=way), services)
        own = platform_in(*_labels(root))
        around.found[before:] = [replace(one, platform=one.platform or own) for one in around.found[before:]]
        kinds += [kind] if kind else []
        others += [] if kind in _WHOLE else [root]
    before = len(around.found) + len(around.notes)
    yaml_scripts.read(text, others, around)
    if not kinds and len(around.found) + len(around.notes) > before:
        kinds.append("YAML file")
    if not kinds:
        raise NoServer(
            "It is none of the YAML forms that start a server.",
            where=text.name,
            fix="Known: Kubernetes manifests, compose files, srt-slurm recipes, SGLang --config files.",
        )
    platform = platform_in(*(value for root in roots for value in _labels(root)))
    reading = around.reading(kinds[0], platform)
    return reading.with_notes(*unreached(around, unread=False))


def _apart(root: Node, kind: str, name: str, fleets: Mapping[str, str]) -> dict[str, Choice]:
    """What sets a manifest apart from others: its namespace, its graph, and a name that is a pair's alone."""
    namespace = scalar(get(root, "metadata", "namespace"))
    graph = name if kind == "DynamoGraphDeployment" else ""
    given = {"namespace": namespace, "graph": graph, "fleet": fleets.get(name)}
    return {subject: Choice(frozenset({value})) for subject, value in given.items() if value}


def fleets_of(names: Sequence[str]) -> dict[str, str]:
    """Which names are of one prefill and decode pair, where a file holds several pairs.

    A pair's names are the same but for the role in them. Other names may go with any.
    """
    stems: dict[str, dict[str, set[str]]] = {}
    for name in names:
        parts = re.split(r"[-_.]", name.lower())
        roles = {part for part in parts if part in _ROLES}
        if len(roles) == 1:
            stem = "-".join(part for part in parts if part not in _ROLES)
            stems.setdefault(stem, {}).setdefault(roles.pop(), set()).add(name)
    pairs = {stem: of for stem, of in stems.items() if len(of) == len(_ROLES)}
    if len(pairs) < 2:
        return {}
    return {name: stem or "-" for stem, of in pairs.items() for found in of.values() for name in found}


def _kind(root: Node) -> str:
    if get(root, "kind") is not None and get(root, "apiVersion") is not None:
        return scalar(get(root, "kind")) or "manifest"
    if isinstance(get(root, "services"), yaml.MappingNode):
        return "compose file"
    if get(root, "roles") is not None or get(root, "backend", "sglang_config") is not None:
        return "srt-slurm recipe"
    keys = ["--" + key.value.replace("_", "-") for key, _ in pairs(root)]
    known = sum(key in options() for key in keys)
    return "config file" if keys and 2 * known >= len(keys) else ""


def _labels(node: Node, seen: set[int] | None = None) -> Iterator[str]:
    """The values of labels and fields that name a GPU, and images, wherever they stand."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _labels(item, seen)
    for key, value in pairs(node):
        if key.value in _LABELS or (key.value == "image" and "sglang" in (scalar(value) or "")):
            yield scalar(value) or ""
        if key.value == "key" and scalar(value) in _LABELS:  # node affinity
            yield from _strings(get(node, "values"))
        yield from _labels(value, seen)


def _strings(node: Node | None) -> Sequence[str]:
    return [str(item.value) for item in getattr(node, "value", []) if isinstance(item, yaml.ScalarNode)]
