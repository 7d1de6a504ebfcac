"""Several servers of one input: what they share and what they must not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from perilune.plan.rules.network import nic_names
from perilune.plan.rules.pools import MEET, is_head, named_role, settled_address
from perilune.plan.rules.ports import ports
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

NICS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
MOST_ON_A_HOST = 64


@rule("fleet-nic", "advice", PAGE)
def nic_everywhere(subjects: Sequence[Subject]) -> Iterator[Says]:
    """The variables that name the network card are set on every server of a fleet or on none, with one value."""
    several = [s for s in subjects if s.parsed]
    for name in NICS:
        concerned = [s for s in several if name in nic_names(s)]
        values = {s.env.get(name) for s in concerned}
        given = sorted(value for value in values if value)
        if len(values) < 2 or not given:
            continue
        if len(given) > 1:
            yield Says(
                f"{name} differs between the servers: {', '.join(given)}.",
                "Use one name, unless the hosts really differ.",
                (name,),
            )
        else:
            yield Says(
                f"{name}={given[0]} is set on some servers and missing on others.",
                f"Set {name}={given[0]} on all of them.",
                (name,),
            )


@rule("fleet-release", "advice", PAGE)
def one_image(subjects: Sequence[Subject]) -> Iterator[Says]:
    """One fleet runs one image."""
    images = sorted({s.image for s in subjects if s.image})
    if len(images) > 1:
        yield Says(f"The servers run different images: {', '.join(images)}.", "Use one, by digest.", ("image",))


@rule("fleet-rendezvous", "error", PAGE)
def own_rendezvous(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Servers of different shape, each with a node 0, cannot meet at one address."""
    shapes: dict[str, set[tuple[object, ...]]] = {}
    for s in subjects:
        address = settled_address(s)
        if address and s.parsed and s.several_nodes and is_head(s):
            shapes.setdefault(address, set()).add((s.role, s["nnodes"], s["tp_size"], s["pp_size"]))
    for address, found in shapes.items():
        if len(found) > 1:
            yield Says(
                f"Servers of different shape meet at {address}: they wait for each other's ranks for ever.",
                "Give each server the address of its own node 0.",
                (MEET,),
            )


@rule("fleet-ports", "error", f"{ENGINE}, port allocation")
def shared_ports(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Servers on one machine, or in one pod, listen on ports of their own."""
    hosts: dict[str, list[Subject]] = {}
    for s in subjects:
        if s.host and s.parsed:
            hosts.setdefault(s.host, []).append(s)
    for host, servers in hosts.items():
        said: set[int] = set()
        for one, other in combinations(servers[:MOST_ON_A_HOST], 2):
            ours, theirs = ports(one), ports(other)
            for flag, port in ours.items():
                where = next((name for name, taken in theirs.items() if taken == port), None)
                if where is None or port in said:
                    continue
                said.add(port)
                flags = f"{flag} of both" if flag == where else f"{flag} of one and {where} of the other"
                yield Says(
                    f"Two servers on {host} listen on port {port} ({flags}): the second does not start.",
                    f"Write another {where} for one of them.",
                    tuple(dict.fromkeys((where, flag))),
                    pool=named_role(other),
                )


RULES = (nic_everywhere, one_image, own_rendezvous, shared_ports)
