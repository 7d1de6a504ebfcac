"""The commands of a deployment, node by node, for a shell or for docker."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from perilune.errors import UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.recipes import Placeholder, catalog
from perilune.plan.compose.docker import docker_lines
from perilune.plan.compose.flags import parse
from perilune.plan.compose.lines import Line, all_words, joined, quoted
from perilune.plan.deployment import Deployment, Pool
from perilune.plan.server import SGLANG_SERVE, Server

FORMS = ("shell", "docker")
ROUTER = "router"

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}")
_TOKEN = re.compile(r"<[A-Za-z][^<>\n]{0,60}>")


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """What to run on one node. `pool` is the role, or `router`; `node` counts from 0, the head.

    `argv` is the whole command, `env` what is set in front of it (inside `argv` for docker), `text` both as
    shell text, `comments` what to know before running it, `open` the placeholders that are still in it.
    """

    pool: str
    node: int
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    text: str
    comments: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def commands(
    deployment: Deployment,
    form: str = "shell",
    *,
    head_ip: str | Mapping[str, str] | None = None,
    nic: str | None = None,
) -> tuple[CommandBlock, ...]:
    """One block per node of every pool, then the router's; raises UnusableInput for a bad address or name.

    `head_ip` is the head's address: one for the first pool, `A,B` for prefill and decode, `ROLE=A,...`, or a
    mapping by role. Placeholders that nothing was given for stay as they are.
    """
    if form not in FORMS:
        raise UnusableInput(f"Unknown value {form[:40]!r}.", where="--form", fix=f"Known: {' '.join(FORMS)}.")
    heads = head_addresses(head_ip, deployment)
    shared = {"<your-nic>": _nic(nic)} if nic is not None else {}
    for role in ("prefill", "decode"):
        if role in heads:
            shared |= {f"<{role}-host>": heads[role], f"<{role}-node0-ip>": heads[role]}
    blocks = [
        _block(pool, node, server, form, _own(shared, heads.get(pool.role), node))
        for pool in (_pinned(pool) if nic is not None else pool for pool in deployment.pools)
        for node, server in enumerate(pool.servers)
    ]
    if deployment.router is not None:
        argv = tuple(_filled(word, shared) for word in deployment.router)
        blocks.append(_finished(ROUTER, 0, argv, (), joined(_router_lines(argv)), ()))
    return tuple(blocks)


def placeholders_left(blocks: Iterable[CommandBlock]) -> tuple[Placeholder, ...]:
    """The placeholders still in some block, which only the user can replace, with their meaning."""
    left = {token for block in blocks for token in block.open}
    return tuple(known for known in catalog().placeholders if known.token in left)


def head_addresses(given: str | Mapping[str, str] | None, deployment: Deployment) -> dict[str, str]:
    """Head addresses by role; raises UnusableInput for a bad address, an unknown role or too many."""
    roles = [pool.role for pool in deployment.pools]
    if given is None:
        return {}
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        if len(parts) > len(roles):
            raise UnusableInput(
                f"{len(parts)} addresses for {len(roles)} pools.",
                where="--head-ip",
                fix=f"Pools: {' '.join(roles)}.",
            )
        pairs = [part.partition("=") for part in parts]
        names = [name for name, eq, _ in pairs if eq]
        if len(set(names)) < len(names):
            raise UnusableInput("It names one pool twice.", where="--head-ip", fix="Give each pool one address.")
        given = {name if eq else roles[i]: addr if eq else name for i, (name, eq, addr) in enumerate(pairs)}
    for role in given:
        if role not in roles:
            raise UnusableInput(
                f"This deployment has no {role[:40]!r} pool.",
                where="--head-ip",
                fix=f"Pools: {' '.join(roles)}.",
            )
    if len(set(given.values())) < len(given):
        raise UnusableInput(
            "Two pools cannot share a head: their rendezvous would merge.",
            where="--head-ip",
            fix="Give each pool a node of its own.",
        )
    return {role: _address(text) for role, text in given.items()}


def _address(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        if _HOST_NAME.fullmatch(text) and ".." not in text and not text.replace(".", "").isdigit():
            return text
    raise UnusableInput(f"{text[:60]!r} is neither an IP address nor a host name.", where="--head-ip")


def _pinned(pool: Pool) -> Pool:
    """A pool over several nodes with its collectives on the given interface, where its recipe leaves that open."""
    if pool.nodes == 1:
        return pool
    collective = "HCCL_SOCKET_IFNAME" if platform(pool.platform).kind == "npu" else "NCCL_SOCKET_IFNAME"
    wanted = {"GLOO_SOCKET_IFNAME": "<your-nic>", collective: "<your-nic>", "SGLANG_HOST_IP": "<this-node-ip>"}
    missing = {name: text for name, text in wanted.items() if name not in pool.server.environment}
    return replace(pool, server=pool.server.with_env(missing))


def _nic(text: str) -> str:
    if not _NIC.fullmatch(text):
        raise UnusableInput(f"{text[:60]!r} is not the name of a network interface.", where="--nic")
    return text


def _own(shared: Mapping[str, str], head: str | None, node: int) -> dict[str, str]:
    """What is known on one node: what all share, its pool's head, and on the head its own address."""
    known = dict(shared)
    if head is not None:
        known[catalog().multi_node.head] = head
        if node == 0:
            known["<this-node-ip>"] = head
    return known


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Put known values in; an IPv6 address beside a port gets its brackets."""
    for token, given in known.items():
        bracketed = f"[{given}]" if ":" in given and text != token else given
        text = text.replace(token, bracketed)
    return text


def _block(pool: Pool, node: int, server: Server, form: str, known: Mapping[str, str]) -> CommandBlock:
    argv = tuple(_filled(word, known) for word in server.argv)
    env = tuple((name, _filled(text, known)) for name, text in server.env)
    if form == "shell":
        full = replace(server, argv=argv, env=env)
        return _finished(pool.role, node, SGLANG_SERVE + argv, env, full.format(one_per_line=True), pool.hints)
    lines = docker_lines(pool, platform(pool.platform), argv, env)
    return _finished(pool.role, node, all_words(lines), (), joined(lines), pool.hints)


def _router_lines(argv: tuple[str, ...]) -> list[Line]:
    """The router's command, one option a line."""
    start = next(i for i, word in enumerate(argv) if word.startswith("--"))
    return [quoted(argv[:start], 0), *(quoted((f.name, *f.values)) for f in parse(argv[start:]))]


def _finished(
    pool: str,
    node: int,
    argv: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    text: str,
    comments: tuple[str, ...],
) -> CommandBlock:
    seen = (token for word in (*argv, *(given for _, given in env)) for token in _TOKEN.findall(word))
    return CommandBlock(pool, node, argv, env, text, comments, tuple(dict.fromkeys(seen)))
