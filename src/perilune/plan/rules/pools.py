"""The nodes of one server, each with a command of its own: together they are every rank once, and agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from perilune.plan.rules.ranks import RANK, numbered
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.subject import Subject

MEET = "--dist-init-addr"
SHARED = (
    ("--nnodes", "nnodes"),
    ("--tp-size", "tp_size"),
    ("--pp-size", "pp_size"),
    ("--attn-dp-size", "attn_dp_size"),
    ("--ep-size", "ep_size"),
    ("--dcp-size", "dcp_size"),
    ("--model-path", "model_path"),
    ("--kv-cache-dtype", "kv_cache_dtype"),
    ("--page-size", "page_size"),
    (MEET, "dist_init_addr"),
)
"""What every node of a server must have alike: flags and the values that they come to."""


def pools(subjects: Sequence[Subject]) -> list[list[Subject]]:
    """The servers that are nodes of one another, the first node first.

    Of one role, all nodes belong to its only head; where there are several heads, to the one at their address.
    """
    found: list[list[Subject]] = []
    for role in dict.fromkeys(s.role for s in subjects):
        nodes = [s for s in subjects if s.role == role and s.parsed and s.shape_known and s.several_nodes]
        heads = [s for s in nodes if is_head(s)]
        if len(heads) == 1:
            found.append(heads + [s for s in nodes if s is not heads[0] and _may_follow(s, heads[0])])
            continue
        at: dict[str, list[Subject]] = {}
        for s in sorted(nodes, key=lambda s: not is_head(s)):
            if address := settled_address(s):
                at.setdefault(address, []).append(s)
        found += at.values()
    return [pool for pool in found if len(pool) > 1]


def is_head(s: Subject) -> bool:
    """Whether it is known to be the first node of its server."""
    return bool(s["node_rank"] == 0) and RANK not in s.unknown


def _may_follow(s: Subject, head: Subject) -> bool:
    """Whether a node can be the head's: one of unknown rank that meets elsewhere is another server's."""
    ours, theirs = settled_address(s), settled_address(head)
    return RANK not in s.unknown or not ours or not theirs or ours == theirs


def settled_address(s: Subject) -> str | None:
    """Where a server's nodes meet, when that is the same text for no other server."""
    address = s.value(MEET)
    return address if address and "<" not in address and "$" not in address else None


def named_role(s: Subject) -> str:
    """The role as findings name it: nothing for a server that has both."""
    return "" if s.role == "unified" else s.role


def _shape(s: Subject) -> tuple[object, ...]:
    return s["nnodes"], s["tp_size"], s["pp_size"]


def _ranks(pool: Sequence[Subject]) -> list[int] | None:
    """The ranks of a pool's nodes; None where one is not known, or where they are not nodes of one server."""
    if len({_shape(s) for s in pool}) > 1 or not all(numbered(s) for s in pool):
        return None
    return [int(s["node_rank"]) for s in pool]


@rule("pool-rank-twice", "error", f"{ENGINE}, rank layout")
def rank_twice(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Every node of a server has a rank of its own."""
    for pool in pools(subjects):
        counts = Counter(_ranks(pool) or ())
        for rank, count in sorted(counts.items()):
            if count > 1:
                yield Says(
                    f"{count} nodes of one server have {RANK} {rank}: they take the same ranks, and others stay away.",
                    f"Give each of the {pool[0]['nnodes']} nodes a {RANK} of its own, from 0.",
                    (RANK,),
                    pool=named_role(pool[0]),
                )


@rule("pool-rank-gap", "error", f"{ENGINE}, rank layout")
def rank_gap(subjects: Sequence[Subject]) -> Iterator[Says]:
    """A rank below others that are given is started nowhere."""
    for pool in pools(subjects):
        ranks = _ranks(pool) or []
        missing = sorted(set(range(max(ranks, default=0))) - set(ranks))
        if missing:
            yield Says(
                f"No node has {RANK} {_listed(missing)}, though one has {max(ranks)}: all wait for it.",
                f"Start every rank from 0 to {pool[0]['nnodes'] - 1}.",
                (RANK,),
                pool=named_role(pool[0]),
            )


@rule("pool-rank-rest", "advice", f"{ENGINE}, rank layout")
def rank_rest(subjects: Sequence[Subject]) -> Iterator[Says]:
    """The nodes of the highest ranks are started elsewhere, or not at all."""
    for pool in pools(subjects):
        ranks, nodes = _ranks(pool), int(pool[0]["nnodes"])
        if ranks and len(set(ranks)) == len(ranks) and max(ranks) + 1 < nodes:
            rest = f"{max(ranks) + 1} to {nodes - 1}" if max(ranks) + 2 < nodes else f"{nodes - 1}"
            yield Says(
                f"{len(pool)} of {nodes} nodes are started here; {RANK} {rest} is not.",
                f"Start every rank from 0 to {nodes - 1}.",
                (RANK,),
                pool=named_role(pool[0]),
            )


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:4]))
    return f"{shown}, ..." if len(ranks) > 4 else shown


@rule("pool-differs", "error", f"{ENGINE}, rank layout")
def differs(subjects: Sequence[Subject]) -> Iterator[Says]:
    """Leader and workers of one server have the same shape, model and meeting place."""
    for head, *workers in pools(subjects):
        if not is_head(head):
            continue
        for flag, field in SHARED:
            odd = next((s for s in workers if not is_head(s) and _contradicts(head, s, flag, field)), None)
            if odd is not None:
                yield Says(
                    f"The nodes of one server differ in {flag}: node 0 has {head[field]}, another {odd[field]}.",
                    f"Write {flag} {head[field]} on every node.",
                    (flag,),
                    pool=named_role(head),
                )


def _contradicts(head: Subject, other: Subject, flag: str, field: str) -> bool:
    if flag in head.unknown or flag in other.unknown:
        return False
    if flag == MEET and not (settled_address(head) and settled_address(other)):
        return False
    return bool(head[field] != other[field])


RULES = (rank_twice, rank_gap, rank_rest, differs)
