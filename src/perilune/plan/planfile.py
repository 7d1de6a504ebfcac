"""A plan on disk: the document of `plan --json` or `--yaml`, written whole and read back into a deployment."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import yaml

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.files import read_capped, replace_file
from perilune.plan.deployment import NODE_RANK, Deployment, Pool, Role, Unknown, Workload
from perilune.plan.planned import Plan
from perilune.plan.server import Server
from perilune.plan.yaml_input import read_yaml

MOST_BYTES = 16 * 1024 * 1024
VERSION = 1
MOST_COUNT = 2**31 - 1
MOST_REPLICAS = 100_000
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
IMAGE = re.compile(r"[A-Za-z0-9<][A-Za-z0-9<>._/:@-]{0,254}")


class _Workload(msgspec.Struct, frozen=True):
    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None


class _Unknown(msgspec.Struct, frozen=True):
    placeholder: str
    flag: str
    what: str
    assume: str = ""
    because: str = ""


class _Pool(msgspec.Struct, frozen=True):
    role: Role
    platform: str
    nodes: int
    gpus: int
    command: list[list[str]]
    env: dict[str, str] = {}
    replicas: int = 1
    recipe: str = ""
    quant: str = ""
    spec: str = ""
    verification: str = ""
    image: str = ""
    unpublished: list[_Unknown] = []
    hints: list[str] = []
    notes: list[str] = []


class _Document(msgspec.Struct, frozen=True):
    perilune: int
    model: str
    pools: list[_Pool]
    workload: _Workload = _Workload()
    router: list[str] | None = None
    hints: list[str] = []
    notes: list[str] = []
    sources: list[str] = []


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan, as JSON to a `.json` path and as YAML to any other; the old file stays until the end."""
    if path.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(plan.to_json()), indent=2).decode() + "\n"
    else:
        text = plan_yaml(plan)
    replace_file(path, text.encode())


def plan_yaml(plan: Plan) -> str:
    """The plan's document as YAML that `read_plan` reads back."""
    document = msgspec.json.decode(msgspec.json.encode(plan.to_json()))
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def read_plan(path: Path) -> Deployment:
    """The deployment in a plan file; raises UnusableInput naming the file and the field."""
    raw = read_capped(path, MOST_BYTES)
    content = _plain(_json(raw, path) if raw.lstrip()[:1] == b"{" else read_yaml(raw, str(path)), str(path))
    try:
        document = msgspec.convert(content, _Document)
    except msgspec.ValidationError as error:
        raise UnusableInput(
            f"It is not a plan: {error}.", where=str(path), fix="Write one with perilune plan -o."
        ) from None
    if document.perilune != VERSION:
        raise UnusableInput(f"It is a plan of version {document.perilune}; this reads {VERSION}.", where=str(path))
    _check(document, str(path))
    return Deployment(
        model=document.model,
        pools=tuple(_pool(entry, f"{path}, pools[{n}]") for n, entry in enumerate(document.pools)),
        router=None if document.router is None else tuple(document.router),
        workload=Workload(document.workload.isl, document.workload.osl, document.workload.concurrency),
        sources=tuple(document.sources),
        hints=tuple(document.hints),
        notes=tuple(document.notes),
    )


def _plain(content: Any, where: str) -> Any:
    """The content, refused where a text holds a control character: it would reach a terminal or a shell."""
    pending = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and not value.isprintable():
            raise UnusableInput(f"{value[:40]!r} holds a character that cannot be printed.", where=where)
    return content


def _check(document: _Document, where: str) -> None:
    roles = [pool.role for pool in document.pools]
    if not roles or len(set(roles)) < len(roles):
        said = f"It has the pools {' '.join(roles)}." if roles else "It has no pool."
        raise UnusableInput(said, where=where, fix="Give one pool a role.")
    router = document.router
    if router is not None and (not router or not router[0] or not any(word.startswith("--") for word in router)):
        raise UnusableInput("It is no command.", where=f"{where}, router", fix="Give its words, or null.")
    load = document.workload
    for name in ("isl", "osl", "concurrency"):
        count = getattr(load, name)
        if count is not None and not 1 <= count <= MOST_COUNT:
            raise UnusableInput(f"{count} is not from 1 to {MOST_COUNT:,}.", where=f"{where}, workload.{name}")
    if (load.isl is None) != (load.osl is None):
        raise UnusableInput("An average request needs both lengths.", where=f"{where}, workload")


def _json(raw: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnusableInput(f"It is not JSON: {error}.", where=str(path)) from None


def _pool(entry: _Pool, where: str) -> Pool:
    try:
        platform(entry.platform)
    except UnusableInput as error:
        raise UnusableInput(error.message, where=where, fix=error.fix) from None
    if not entry.command or len(entry.command) != entry.nodes:
        raise UnusableInput(
            f"It has {len(entry.command)} commands for {entry.nodes} nodes.",
            where=where,
            fix="Give one per node.",
        )
    most = entry.nodes * platform(entry.platform).gpus_per_node
    for name, count, limit in (("gpus", entry.gpus, most), ("replicas", entry.replicas, MOST_REPLICAS)):
        if not 1 <= count <= limit:
            raise UnusableInput(f"{count} is not from 1 to {limit:,}.", where=f"{where}.{name}")
    for name in entry.env:
        if not ENV_NAME.fullmatch(name):
            raise UnusableInput(f"{name[:60]!r} is no name of a variable.", where=f"{where}.env")
    if entry.image and not IMAGE.fullmatch(entry.image):
        raise UnusableInput(f"{entry.image[:60]!r} is no name of an image.", where=f"{where}.image")
    for unknown in entry.unpublished:
        try:
            shlex.split(unknown.assume)
        except ValueError:
            raise UnusableInput("The quotes do not close.", where=f"{where}.unpublished.assume") from None
    try:
        head = Server.parse([*(f"{name}={text}" for name, text in entry.env.items()), *entry.command[0]])
    except UnusableInput as error:
        raise UnusableInput(error.message, where=f"{where}.command", fix=error.fix) from None
    if head.wrapper:
        raise UnusableInput(
            "A plan holds the bare server command.", where=f"{where}.command", fix=f"Remove {head.wrapper[0][:40]}."
        )
    if entry.nodes > 1:
        head = head.set("--node-rank", NODE_RANK)
    pool = Pool(
        role=entry.role,
        platform=entry.platform,
        nodes=entry.nodes,
        gpus=entry.gpus,
        server=head,
        replicas=entry.replicas,
        recipe=entry.recipe,
        quant=entry.quant,
        spec=entry.spec,
        unpublished=tuple(Unknown(**msgspec.to_builtins(unknown)) for unknown in entry.unpublished),
        verification=entry.verification,
        image=entry.image,
        hints=tuple(entry.hints),
        notes=tuple(entry.notes),
    )
    if any(tuple(command) != (*s.program, *s.argv) for command, s in zip(entry.command, pool.servers, strict=True)):
        raise UnusableInput(
            "The commands of its nodes differ in more than --node-rank.",
            where=where,
            fix="Make them the same.",
        )
    return pool
