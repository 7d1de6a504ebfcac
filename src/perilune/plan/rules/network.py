"""Between nodes: network cards, NVLink domains, RDMA devices."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import Edit
from perilune.plan.rules.rule import COMPARED, ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

FABRIC = frozenset({"gb200", "gb300", "h200"})
RENDEZVOUS = "--dist-init-addr"


def nic_names(s: Subject) -> tuple[str, ...]:
    """The variables that name the card between nodes on this platform."""
    return ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME" if s.platform.kind == "npu" else "NCCL_SOCKET_IFNAME")


@rule("net-nic", "advice", PAGE)
def nic(s: Subject) -> Iterator[Says]:
    """Servers across nodes pin the network card of both collectives, or some rank picks the wrong one."""
    if not s.parsed or not s.several_nodes or s.template or s.platform.id in ("gb200", "gb300"):
        return
    missing = [name for name in nic_names(s) if not s.env.get(name)]
    if missing:
        yield Says(
            f"{s.platform.label} over several nodes without {' and '.join(missing)}: on a host with several cards "
            "a rank may bind to one that reaches nobody.",
            f"Set {' and '.join(missing)} to the card between the nodes, SGLANG_HOST_IP to each node's own address.",
            (missing[0], "--nnodes"),
        )


@rule("net-rendezvous", "error", ENGINE)
def rendezvous(s: Subject) -> Iterator[Says]:
    """Several nodes need an address where they meet, and not this machine's own."""
    if not s.parsed or not s.several_nodes or s.server.has("--use-ray"):
        return
    written = s.value(RENDEZVOUS)
    if written is None:
        yield Says(
            "Several nodes without --dist-init-addr: every node waits for itself.",
            "Write --dist-init-addr ADDRESS-OF-NODE-0:20000, the same on every node.",
            (RENDEZVOUS, "--nnodes"),
        )
    elif written.rpartition(":")[0] in ("127.0.0.1", "localhost", "0.0.0.0"):  # noqa: S104 - looked for, not bound
        yield Says(
            f"--dist-init-addr {written} is each node itself: the nodes never meet.",
            "Write the address of node 0 as the other nodes reach it.",
            (RENDEZVOUS,),
        )


@rule("net-nvlink", "advice", PAGE)
def nvlink(s: Subject) -> Iterator[Says]:
    """NVLink between nodes and symmetric memory need MNNVL and CUMEM on."""
    if not s.parsed or s.platform.id not in FABRIC:
        return
    for name in ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"):
        if s.env.get(name) == "0":
            yield Says(
                f"{name}=0 turns NVLink between the nodes off on {s.platform.label}: collectives crawl or hang.",
                flags=(name,),
                edits=(Edit("env", name, "1"),),
            )


@rule("net-ib-disabled", "advice", "sgl-project/sglang pull request 24977")
def ib_disabled(s: Subject) -> Iterator[Says]:
    """NCCL_IB_DISABLE=1 sends traffic between nodes over TCP."""
    if s.parsed and s.several_nodes and s.on_env("NCCL_IB_DISABLE"):
        yield Says(
            "NCCL_IB_DISABLE=1 sends what leaves the node over TCP; on an NVLink rack it is not what turns MNNVL on.",
            flags=("NCCL_IB_DISABLE",),
            edits=(Edit("unset-env", "NCCL_IB_DISABLE"),),
        )


@rule("net-ib-device-ignored", "rewrite", f"transfer code of {COMPARED}", until="0.5.23")
def ib_device_ignored(s: Subject) -> Iterator[Says]:
    """Before 0.5.23 NIXL ignores --disaggregation-ib-device."""
    device = s.value("--disaggregation-ib-device")
    if device is not None and s.parsed and s["disaggregation_transfer_backend"] == "nixl":
        if "UCX_NET_DEVICES" in s.env:
            return
        name = device if ":" in device else ",".join(f"{one.strip()}:1" for one in device.split(","))
        yield Says(
            f"NIXL of SGLang {s.engine} ignores --disaggregation-ib-device {device}; UCX picks devices by itself.",
            flags=("--disaggregation-ib-device",),
            edits=(Edit("env", "UCX_NET_DEVICES", name),),
        )


@rule("net-ib-device-twice", "rewrite", since="0.5.23")
def ib_device_twice(s: Subject) -> Iterator[Says]:
    """UCX_NET_DEVICES wins over --disaggregation-ib-device."""
    device, given = s.value("--disaggregation-ib-device"), s.env.get("UCX_NET_DEVICES")
    if not device or not given or not s.parsed or s["disaggregation_transfer_backend"] != "nixl":
        return
    if {one.partition(":")[0].strip() for one in given.split(",")} != {one.strip() for one in device.split(",")}:
        yield Says(
            f"UCX_NET_DEVICES={given} wins over --disaggregation-ib-device {device}.",
            flags=("UCX_NET_DEVICES", "--disaggregation-ib-device"),
            edits=(Edit("unset-env", "UCX_NET_DEVICES"),),
        )


RULES = (nic, rendezvous, nvlink, ib_disabled, ib_device_ignored, ib_device_twice)
