"""Several servers of one input: what they share and what they must not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from perilune.plan.rules.edits import Edit
from perilune.plan.rules.network import nic_names
from perilune.plan.rules.pools import MEET, is_head, named_role, settled_address
from perilune.plan.rules.ports import next_port, rendezvous_port, taken
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

NICS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
MOST_ON_A_HOST = 64


@rule("fleet-nic", "advice", PAGE)
def nic_everywhere(subjects: Sequence[Subject]) -> Iterator[Says]:
    """The variables that name the network card are set on every server of a fleet or on none, with one value."""
    for name in NICS:
        concerned = {at: s.env.get(name) for at, s in enumerate(subjects) if s.parsed and name in nic_names(s)}
        given = sorted({value for value in concerned.values() if value})
        if len(given) > 1:
            yield Says(
                f"{name} differs between the servers: {', '.join(given)}.",
                "Use one name, unless the hosts really differ.",
                (name,),
            )
        for at in (at for at, value in concerned.items() if not value and len(given) == 1):
            yield Says(
                f"{name} is not set here; other servers have {given[0]}.",
                flags=(name,),
                edits=(Edit("env", name, given[0]),),
                pool=named_role(subjects[at]),
                member=at,
            )


@rule("fleet-release", "advice", PAGE)
def one_image(subjects: Sequence[Subject]) -> Iterator[Says]:
    """One fleet runs one image."""
    images = sorted({s.image for s in subjects if s.image})
    if len(images) > 1:
        yield Says(f"The servers run different images: {', '.join(images)}.", "Use one, by digest.", ("image",))


@rule("fleet-rendezvous", "error", PAGE)
def own_rendezvous(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Servers of different shape, each with a node 0, cannot meet at one address; of pairs `pd-rendezvous` says it."""
    shapes: dict[str, set[tuple[object, ...]]] = {}
    for s in subjects:
        address = settled_address(s)
        if address and s.parsed and s.several_nodes and is_head(s):
            shapes.setdefault(address, set()).add((s.role, s["nnodes"], s["tp_size"], s["pp_size"]))
    for address, found in shapes.items():
        if len(found) > 1 and {shape[0] for shape in found} != {"prefill", "decode"}:
            yield Says(
                f"Servers of different shape meet at {address}: they wait for each other's ranks for ever.",
                "Give each server the address of its own node 0.",
                (MEET,),
            )


@rule("fleet-ports", "error", f"{ENGINE}, port allocation")
def shared_ports(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Servers on one machine, or in one pod, listen on ports of their own."""
    hosts: dict[str, dict[int, Subject]] = {}
    for at, s in enumerate(subjects):
        if s.host and s.parsed:
            hosts.setdefault(s.host, {})[at] = s
    for host, servers in hosts.items():
        said: set[int] = set()
        everything = {port for s in servers.values() for port in taken(s)}
        for (_, one), (at, other) in combinations(list(servers.items())[:MOST_ON_A_HOST], 2):
            ours, theirs = taken(one), taken(other)
            clashes = {(ours[port], theirs[port]): port for port in sorted({*ours} & {*theirs} - said, reverse=True)}
            for (flag, where), port in clashes.items():
                said.add(port)
                flags = f"{flag} of both" if flag == where else f"{flag} of one and {where} of the other"
                written = (rendezvous_port(other) if where.flag == MEET else other["port"]) if where.derived else port
                yield Says(
                    f"Two servers on {host} listen on port {port} ({flags}): the second does not start.",
                    f"Write another port for {where.flag} of one, such as {next_port(written or port, everything)}.",
                    tuple(dict.fromkeys((where.flag, flag.flag))),
                    pool=named_role(other),
                    member=at,
                )


RULES = (nic_everywhere, one_image, own_rendezvous, shared_ports)
