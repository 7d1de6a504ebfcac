"""What a prefill and a decode server must agree on, judged on resolved values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from perilune.plan.memory import Ledger
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.families import SPECULATION
from perilune.plan.rules.routing import Router
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

CONNECT = f"{ENGINE}, checks when the decode side connects"
PAGE_SIZE = "--page-size"
TRANSFER = "--disaggregation-transfer-backend"
ALGORITHM, DRAFT = "--speculative-algorithm", "--speculative-draft-model-path"
WINDOW = ("--speculative-num-draft-tokens", "--speculative-num-steps", "--speculative-eagle-topk")
BLOCK = {"DSPARK": "--speculative-dspark-block-size", "DFLASH": "--speculative-dflash-block-size"}


def both(p: Subject, d: Subject) -> bool:
    """Whether the values of both roles are final."""
    return p.accepted and d.accepted


@dataclass(frozen=True, slots=True)
class Way:
    """One way to agree: the edits to one role, and the value it must come to."""

    pool: str
    role: Subject
    edits: tuple[Edit, ...]
    wanted: object


def _agreeing(flag: str, said: str, read: Callable[[Ledger], object], ways: Sequence[Way]) -> Says:
    """What `said` says, with the first way that is kept by the engine."""
    for way in ways:
        after = way.role.again(way.edits)
        if after.resolved.accepted and read(after) == way.wanted:
            return Says(said, flags=(flag,), edits=way.edits, pool=way.pool)
    return Says(said, f"Change what decides {flag} on one role: written there, it is not kept.", (flag,))


def _same(flag: str, what: str, read: Callable[[Ledger], object]) -> Callable[..., Iterator[Says]]:
    """A rule that what `read` finds agrees; `flag` is what to write where it does not."""

    def check(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
        if not both(p, d):
            return
        ours, theirs = read(p.ledger), read(d.ledger)
        if ours == theirs:
            return
        ways = [
            Way("decode", d, (write(flag, str(ours)),), ours),
            Way("prefill", p, (write(flag, str(theirs)),), theirs),
        ]
        if d.wrote(flag) and not p.wrote(flag):
            ways.reverse()
        yield _agreeing(flag, f"{what}: prefill {ours}, decode {theirs}.", read, ways)

    check.__doc__ = f"{what}; both roles must resolve to the same."
    return check


kv_dtype = rule("pd-kv-dtype", "error", CONNECT)(
    _same("--kv-cache-dtype", "The KV formats differ, and the transfer is refused", lambda found: found.kv_format)
)


@rule("pd-page-size", "error", CONNECT)
def page_size(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The page sizes differ, and the transfer is refused; both roles must resolve to the same."""
    if not both(p, d) or p["page_size"] == d["page_size"]:
        return
    ours, theirs = p["page_size"] or 1, d["page_size"] or 1
    roles = [("decode", d, p, ours), ("prefill", p, d, theirs)]
    if theirs > ours:  # the kernels with large pages are the fast ones
        roles.reverse()
    alone = [Way(pool, role, (write(PAGE_SIZE, wanted),), wanted) for pool, role, _, wanted in roles]
    with_kernel = [
        Way(pool, role, (write("--attention-backend", _attention(other)), write(PAGE_SIZE, wanted)), wanted)
        for pool, role, other, wanted in roles
    ]
    said = f"The page sizes differ, and the transfer is refused: prefill {ours}, decode {theirs}."
    yield _agreeing(PAGE_SIZE, said, lambda found: found.resolved["page_size"], (*alone, *with_kernel))


transfer_backend = rule("pd-transfer", "error", CONNECT)(
    _same(TRANSFER, "The transfer backends differ", lambda found: found.resolved["disaggregation_transfer_backend"])
)
state_dtype = rule("pd-state-dtype", "error", CONNECT)(
    _same("--mamba-ssm-dtype", "The state dtypes differ", lambda found: found.state_dtype)
)


def _attention(s: Subject) -> str:
    field = "prefill_attention_backend" if s.role == "prefill" else "decode_attention_backend"
    return str(s[field] or s["attention_backend"])


@rule("pd-attention", "advice", "NVIDIA/srt-slurm issue 429")
def attention(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Attention backends that each role chose by itself may change its page size with the next flag."""
    if not both(p, d) or p["page_size"] == d["page_size"]:
        return
    page, by_hand = max(p["page_size"] or 1, d["page_size"] or 1), p.wrote(PAGE_SIZE) and d.wrote(PAGE_SIZE)
    if not by_hand:
        yield Says(
            f"Page sizes follow from each role's attention backend: prefill {_attention(p)}, decode {_attention(d)}.",
            f"Write {PAGE_SIZE} {page} and --attention-backend on both roles.",
            (PAGE_SIZE, "--attention-backend"),
        )


def _as_on_prefill(p: Subject, d: Subject, flags: tuple[str, ...]) -> tuple[Edit, ...]:
    """The edits that write `flags` on decode as prefill has them."""
    found: list[Edit] = []
    for flag in flags:
        ours = p.value(flag)
        if ours == d.value(flag):
            continue
        found += remove(flag) if ours is None else (write(flag, ours),)
    return tuple(found)


@rule("pd-speculation", "error", PAGE)
def speculation(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Where both roles speculate, algorithm, draft and the tokens verified at once agree."""
    if not both(p, d) or not p.speculates or not d.speculates:
        return
    window = tuple(BLOCK[s["speculative_algorithm"]] for s in (p, d) if s["speculative_algorithm"] in BLOCK)
    for field, what, flags in (
        ("speculative_algorithm", "algorithms", (ALGORITHM,)),
        ("speculative_draft_model_path", "drafts", (DRAFT,)),
        ("speculative_num_draft_tokens", "numbers of draft tokens", (*dict.fromkeys(window), *WINDOW)),
    ):
        if p[field] != d[field]:
            written = tuple(flag for flag in flags if p.wrote(flag) or d.wrote(flag))
            edits = _as_on_prefill(p, d, flags)
            yield Says(
                f"The {what} of speculation differ: prefill {p[field]}, decode {d[field]}.",
                "" if edits else f"Write the same {flags[0]} on both.",
                written or flags[:1],
                edits,
                pool="decode",
            )


@rule("pd-draft-wasted", "advice", PAGE)
def wasted_draft(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A draft on prefill alone is computed and thrown away."""
    if both(p, d) and p.speculates and not d.speculates:
        yield Says(
            f"Prefill computes a draft ({p['speculative_algorithm']}) that decode, without speculation, throws away.",
            flags=(ALGORITHM,),
            edits=remove(*(flag for flag in SPECULATION if p.wrote(flag))),
            pool="prefill",
        )


RULES = (kv_dtype, page_size, transfer_backend, state_dtype, attention, speculation, wasted_draft)
