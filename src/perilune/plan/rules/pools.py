"""The nodes of one server, each with a command of its own: together they are every rank once, and agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from perilune.plan.rules.edits import remove, write
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
    ("--chunked-prefill-size", "chunked_prefill_size"),
    ("--max-running-requests", "max_running_requests"),
    ("--disable-radix-cache", "disable_radix_cache"),
    ("--moe-a2a-backend", "moe_a2a_backend"),
    ("--speculative-algorithm", "speculative_algorithm"),
    ("--speculative-num-draft-tokens", "speculative_num_draft_tokens"),
    (MEET, "dist_init_addr"),
)
"""What every node of a server must have alike, for each schedules by itself: flags and the values they come to."""


def pools(subjects: Sequence[Subject]) -> list[list[int]]:
    """The places of servers that are nodes of one another, the first node first.

    Of one role, all nodes belong to its only head; where there are several heads, to the one at their address.
    """
    found: list[list[int]] = []
    for role in dict.fromkeys(s.role for s in subjects):
        nodes = {
            at: s for at, s in enumerate(subjects) if s.role == role and s.parsed and s.shape_known and s.several_nodes
        }
        heads = [at for at, s in nodes.items() if is_head(s)]
        if len(heads) == 1:
            others = [at for at, s in nodes.items() if at != heads[0] and _may_follow(s, nodes[heads[0]])]
            found.append(heads + others)
            continue
        meeting: dict[str, list[int]] = {}
        for at in sorted(nodes, key=lambda at: not is_head(nodes[at])):
            if address := settled_address(nodes[at]):
                meeting.setdefault(address, []).append(at)
        found += meeting.values()
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
    for places in pools(subjects):
        pool = [subjects[at] for at in places]
        ranks, nodes = _ranks(pool) or [], int(pool[0]["nnodes"])
        free = (rank for rank in range(nodes) if rank not in ranks)
        for at, rank in enumerate(ranks):
            if rank not in ranks[:at]:
                continue
            own = next(free, None)
            yield Says(
                f"Two nodes of one server have {RANK} {rank}: they take the same ranks, and others stay away.",
                "" if own is not None else f"{len(pool)} nodes are started for {nodes}: leave this one out.",
                (RANK,),
                (write(RANK, own),) if own is not None else (),
                pool=named_role(pool[0]),
                member=places[at],
            )


@rule("pool-rank-gap", "error", f"{ENGINE}, rank layout")
def rank_gap(subjects: Sequence[Subject]) -> Iterator[Says]:
    """A rank below others that are given is started nowhere."""
    for places in pools(subjects):
        pool = [subjects[at] for at in places]
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
    for places in pools(subjects):
        pool = [subjects[at] for at in places]
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
    for first, *workers in pools(subjects):
        head = subjects[first]
        if not is_head(head):
            continue
        for (flag, field), at in product(SHARED, workers):
            odd = subjects[at]
            if not is_head(odd) and _contradicts(head, odd, flag, field):
                yield Says(
                    f"The nodes of one server differ in {flag}: node 0 has {head[field]}, this one {odd[field]}.",
                    flags=(flag,),
                    edits=(write(flag, head.value(flag)),) if head.wrote(flag) else remove(flag),
                    pool=named_role(head),
                    member=at,
                )


def _contradicts(head: Subject, other: Subject, flag: str, field: str) -> bool:
    if flag in head.unknown or flag in other.unknown:
        return False
    if flag == MEET and not (settled_address(head) and settled_address(other)):
        return False
    return bool(head[field] != other[field])


RULES = (rank_twice, rank_gap, rank_rest, differs)
