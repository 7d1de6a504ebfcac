"""Several servers of one input: what they share and what they must not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perilune.plan.rules.network import nic_names
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject


@rule("fleet-nic", "error", PAGE)
def nic_everywhere(subjects: Sequence[Subject]) -> Iterator[Says]:
    """The variables that name the network card are set on every server of a fleet or on none, with one value."""
    several = [s for s in subjects if s.parsed]
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"):
        concerned = [s for s in several if name in nic_names(s)]
        values = {s.env.get(name) for s in concerned}
        given = sorted(value for value in values if value)
        if len(values) < 2 or len(given) == 0:
            continue
        if len(given) > 1:
            yield Says(
                f"{name} differs between the servers: {', '.join(given)}.",
                "Use one name, unless the hosts really differ.",
                (name,),
                severity="advice",
            )
        else:
            yield Says(
                f"{name}={given[0]} is set on some servers and missing on others.",
                f"Set {name}={given[0]} on all of them.",
                (name,),
                severity="advice",
            )


@rule("fleet-release", "advice", PAGE)
def one_image(subjects: Sequence[Subject]) -> Iterator[Says]:
    """One fleet runs one image."""
    images = sorted({s.image for s in subjects if s.image})
    if len(images) > 1:
        yield Says(f"The servers run different images: {', '.join(images)}.", "Use one, by digest.", ("image",))


@rule("fleet-rendezvous", "error", PAGE)
def own_rendezvous(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Servers of different shape cannot meet at one address."""
    shapes: dict[str, set[tuple[object, ...]]] = {}
    for s in subjects:
        address = s.value("--dist-init-addr")
        if s.parsed and s.several_nodes and address and "<" not in address and "$" not in address:
            shape = (s.role, s["nnodes"], s["tp_size"], s["pp_size"])
            shapes.setdefault(address, set()).add(shape)
    for address, found in shapes.items():
        if len(found) > 1:
            yield Says(
                f"Servers of different shape meet at {address}: they wait for each other's ranks for ever.",
                "Give each server the address of its own node 0.",
                ("--dist-init-addr",),
            )


RULES = (nic_everywhere, one_image, own_rendezvous)
