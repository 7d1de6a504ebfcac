"""What is computed from a composed command: the request cap, the state ratio, GPUs, nodes and node flags."""

from __future__ import annotations

from perilune.errors import UnusableInput
from perilune.facts.hardware import Platform
from perilune.facts.recipes import Recipe, catalog
from perilune.plan.compose.choice import Choice
from perilune.plan.compose.flags import Flag, Flags, after_last, before_host, has, number, replaced, value
from perilune.plan.compose.presets import node_flags
from perilune.plan.compose.ratio import ratio_inputs, shown

RATIO = "--mamba-full-memory-ratio"
STATE_SLOTS = "--max-mamba-cache-size"
REQUEST_CAP = "--max-running-requests"
GRAPHS = "--cuda-graph-bs-decode"
MOST_DIGITS = 10
MAX_NODES = 10_000


def with_request_cap(flags: Flags, choice: Choice, *, pd: bool, own: bool = False) -> tuple[Flags, tuple[str, ...]]:
    """Write the concurrency down where speculation would cap it, or where the recipe caps it or leaves the cap open.

    A cap stays that the user wrote (`own`), or that the recipe pins together with the state pool. Returns the flags
    and what to say about it.
    """
    default = catalog().speculative_request_cap
    written = value(flags, REQUEST_CAP)
    unpublished = written is not None and written.startswith("<")
    pinned = own or (written is not None and not unpublished and has(flags, STATE_SLOTS))
    if pinned or (written is None and not has(flags, "--speculative-algorithm")):
        return flags, ()
    if choice.concurrency is None:
        caps = f"Speculation without {REQUEST_CAP} caps the server at {default} requests; give --concurrency."
        return flags, () if written is not None else (caps,)
    wanted = choice.concurrency * (2 if pd else 1)
    if written == str(wanted):
        return flags, ()
    kept, rest = replaced(flags, {REQUEST_CAP}, (Flag(REQUEST_CAP, (str(wanted),)),))
    why = "twice the concurrency, on both roles of a PD pair" if pd else "the concurrency"
    instead = f"speculation alone caps at {default}" if written is None or unpublished else f"the recipe has {written}"
    said = (f"{REQUEST_CAP} {wanted} is {why}; {instead}.", *_graphs_end(flags, wanted))
    return before_host(kept, rest), said


def _graphs_end(flags: Flags, wanted: int) -> tuple[str, ...]:
    """What to say where a recipe lists decode graphs, and none of them is as large as the batch."""
    listed = [flag.values for flag in flags if flag.name == GRAPHS]
    sizes = [int(text) for values in listed for text in values if text.isdecimal() and len(text) < MOST_DIGITS]
    most = max(sizes, default=wanted) * number(flags, "--attn-dp-size", 1)
    if most >= wanted:
        return ()
    return (f"Its decode graphs end at {most} requests; beyond, steps run without one: add sizes to {GRAPHS}.",)


def with_ratio(flags: Flags, env: dict[str, str], choice: Choice) -> Flags:
    """Add the ratio for the average request before `--host`, unless the state pool is sized another way."""
    if has(flags, RATIO) or has(flags, STATE_SLOTS) or value(flags, "--device") == "npu":
        return flags
    length = catalog().average_request_tokens
    if choice.isl is not None and choice.osl is not None:
        length = choice.isl + choice.osl
    ratio = ratio_inputs(flags, env).ratio(length)
    return flags if ratio is None else before_host(flags, (Flag(RATIO, (shown(ratio),)),))


def gpus_of(flags: Flags) -> int:
    """GPUs of one server: tensor-parallel ranks, pipeline stages, and replicas without attention DP."""
    replicas = 1 if has(flags, "--enable-dp-attention") else number(flags, "--dp-size", 1)
    gpus = number(flags, "--tp-size", 1) * number(flags, "--pp-size", 1) * replicas
    if gpus < 1:
        raise UnusableInput("The server has no GPU.", where="--tp-size", fix="Set sizes of 1 or more.")
    return gpus


def nodes_of(flags: Flags, platform: Platform) -> int:
    """Nodes of one server: as written, or as many as its GPUs fill."""
    nodes = number(flags, "--nnodes", -(-gpus_of(flags) // platform.gpus_per_node))
    if not 0 < nodes <= MAX_NODES:
        raise UnusableInput(f"{nodes} nodes is not between 1 and {MAX_NODES:,}.", where="--set nnodes")
    return nodes


def with_node_flags(flags: Flags, nodes: int, recipe: Recipe) -> Flags:
    """Add the node flags that are missing after the widths, where a server spans nodes."""
    if nodes == 1:
        return flags
    node = catalog().multi_node
    missing = tuple(f for f in node_flags(nodes, recipe.cell.head or node.head) if not has(flags, f.name))
    return after_last(flags, node.anchors, node.fallback_anchor, missing)
