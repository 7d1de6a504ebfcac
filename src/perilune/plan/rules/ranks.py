"""One node of a server: its rank, the accelerators it is given, and the group that starts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perilune.plan.rules.edits import write
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.subject import Subject

RANK, NODES = "--node-rank", "--nnodes"
LAYOUT = f"{ENGINE}, rank layout"
VISIBLE = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
}


def numbered(s: Subject) -> bool:
    """Whether rank and number of nodes are known, and decide which ranks the node runs."""
    scaled = s.server.has("--use-ray") or s["ep_join_mode"] == "scale"
    return s.parsed and not scaled and not {RANK, NODES}.intersection(s.unknown) and s.shape_known


@rule("node-rank-range", "error", LAYOUT)
def rank_range(s: Subject) -> Iterator[Says]:
    """Nodes are numbered from 0: a rank of --nnodes or more has no work, and the others wait."""
    rank, nodes = s["node_rank"], s["nnodes"]
    if not numbered(s) or rank < nodes:
        return
    group = s.group_size
    yield Says(
        f"{RANK} {rank} is beyond the last of {nodes} node{'s' * (nodes > 1)}, {nodes - 1}: it has no ranks to run.",
        "" if group and group > rank else f"Number the nodes from 0 to {nodes - 1}, or write {NODES} for all of them.",
        (RANK, NODES),
        (write(NODES, group),) if group and group > rank else (),
    )


def ranks_here(s: Subject) -> int:
    """Ranks that one node of the server runs."""
    nodes, pp, tp = s["nnodes"], s["pp_size"], s["tp_size"]
    each = max(pp // nodes, 1) * (tp // max(nodes // pp, 1))
    return int(each if s["enable_dp_attention"] else each * s["dp_size"])


def visible_devices(s: Subject) -> int | None:
    """Accelerators that the node sees, by its pod or by its variables; None where nothing says so."""
    listed = [_listed(s.env, name) for name in VISIBLE[s.platform.kind]]
    return min((count for count in (s.gpus_visible, *listed) if count is not None), default=None)


def _listed(env: Mapping[str, str], name: str) -> int | None:
    """Devices in a list of numbers or identifiers; the first negative number ends it."""
    text = env.get(name)
    if text is None or "$" in text or "<" in text or "{" in text:
        return None
    names = [one.strip() for one in text.split(",")] if text.strip() else []
    return next((at for at, one in enumerate(names) if one.startswith("-")), len(names))


@rule("node-gpus-visible", "error", LAYOUT)
def gpus_visible(s: Subject) -> Iterator[Says]:
    """The node is given fewer accelerators than it runs ranks."""
    seen = visible_devices(s)
    if seen is None or not s.parsed or not s.shape_known or (s.several_nodes and NODES in s.unknown):
        return
    ranks = ranks_here(s)
    if s.server.has("--use-ray") or ranks > s.platform.gpus_per_node:
        return
    base, step = s["base_gpu_id"] or 0, s["gpu_id_step"] or 1
    last = base + (ranks - 1) * step
    if last < seen:
        return
    where = f", the last on GPU {last}" if last >= ranks else ""
    are = "is" if seen == 1 else "are"
    yield Says(
        f"The server runs {ranks} ranks on this node{where}; of its GPUs {seen} {are} visible.",
        f"Give it {last + 1} GPUs, or lower --tp-size.",
        (*VISIBLE[s.platform.kind], "--tp-size"),
    )


@rule("group-small", "error", LAYOUT)
def group_small(s: Subject) -> Iterator[Says]:
    """The group starts fewer nodes than the server waits for."""
    size, nodes = s.group_size, s["nnodes"]
    if size is None or not s.parsed or NODES in s.unknown or nodes <= size:
        return
    fits = s["tp_size"] * s["pp_size"] % size == 0
    yield Says(
        f"{NODES} is {nodes}, and the group starts {size} node{'s' * (size > 1)}: the server waits for the others.",
        "" if fits else f"Let the group start {nodes} nodes, or write {NODES} {size} and a --tp-size for them.",
        (NODES,),
        (write(NODES, size),) if fits else (),
    )


@rule("group-large", "advice", LAYOUT)
def group_large(s: Subject) -> Iterator[Says]:
    """The group starts more nodes than one server takes, which is sound only when another server takes the rest."""
    size, nodes = s.group_size, s["nnodes"]
    if size is None or not s.parsed or NODES in s.unknown or not 1 < nodes < size:
        return
    yield Says(
        f"The group starts {size} nodes, and the server takes {nodes} of them.",
        f"Write {NODES} {size}, unless another server takes the rest.",
        (NODES,),
    )


RULES = (rank_range, gpus_visible, group_small, group_large)
