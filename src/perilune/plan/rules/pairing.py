"""What a prefill and a decode server must agree on, judged on resolved values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from perilune.plan.rules.ascend import STORE
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.routing import Router
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

CONNECT = f"{ENGINE}, checks when the decode side connects"


def _both(p: Subject, d: Subject) -> bool:
    return p.accepted and d.accepted


@rule("pd-roles", "error")
def roles(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A pair is one prefill and one decode server."""
    for subject, wanted in ((p, "prefill"), (d, "decode")):
        if subject.parsed and subject.role != wanted:
            yield Says(
                f"The {wanted} server runs with --disaggregation-mode {subject['disaggregation_mode']}.",
                flags=("--disaggregation-mode",),
                edits=(write("--disaggregation-mode", wanted),),
                pool=wanted,
            )


def _same(
    flag: str, field: str, what: str, same_as: tuple[tuple[object, str], ...] = ()
) -> Callable[[Subject, Subject, Router], Iterator[Says]]:
    """A rule that `field` agrees. `same_as` pairs a value with another that means the same."""
    means: dict[object, object] = dict(same_as)

    def check(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
        if not _both(p, d):
            return
        ours, theirs = (means.get(subject[field], subject[field]) for subject in (p, d))
        if ours == theirs:
            return
        wanted, pool = (ours, "decode") if p.wrote(flag) or not d.wrote(flag) else (theirs, "prefill")
        edits = (write(flag, str(wanted)),) if wanted not in (None, "", "auto") else ()
        fix = "" if edits else f"Write the same {flag} on both."
        yield Says(f"{what}: prefill {ours}, decode {theirs}.", fix, (flag,), edits, pool=pool)

    check.__doc__ = f"{what}; both roles must resolve to the same."
    return check


KV_DTYPES = (("bfloat16", "bf16"), ("auto", "bf16"))  # auto, of a checkpoint without an FP8 KV scheme

kv_dtype = rule("pd-kv-dtype", "error", CONNECT)(
    _same("--kv-cache-dtype", "kv_cache_dtype", "The KV dtypes differ, and the transfer is refused", KV_DTYPES)
)
page_size = rule("pd-page-size", "error", CONNECT)(
    _same("--page-size", "page_size", "The page sizes differ, and the transfer is refused")
)
transfer_backend = rule("pd-transfer", "error", CONNECT)(
    _same("--disaggregation-transfer-backend", "disaggregation_transfer_backend", "The transfer backends differ")
)
state_dtype = rule("pd-state-dtype", "error", CONNECT)(
    _same("--mamba-ssm-dtype", "mamba_ssm_dtype", "The state dtypes differ", ((None, "float32"),))
)


def _attention(s: Subject) -> str:
    field = "prefill_attention_backend" if s.role == "prefill" else "decode_attention_backend"
    return str(s[field] or s["attention_backend"])


@rule("pd-attention", "advice", "NVIDIA/srt-slurm issue 429")
def attention(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Attention backends that each role chose by itself may change its page size with the next flag."""
    if not _both(p, d) or p["page_size"] == d["page_size"]:
        return
    page, by_hand = max(p["page_size"] or 1, d["page_size"] or 1), p.wrote("--page-size") and d.wrote("--page-size")
    if not by_hand:
        yield Says(
            f"Page sizes follow from each role's attention backend: prefill {_attention(p)}, decode {_attention(d)}.",
            f"Write --page-size {page} and --attention-backend on both roles.",
            ("--page-size", "--attention-backend"),
        )


@rule("pd-model", "error", CONNECT)
def model(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Both roles serve the same model."""
    if p.parsed and d.parsed and p.resolved.model.raw.get("architectures") != d.resolved.model.raw.get("architectures"):
        yield Says(
            f"Prefill serves {p.resolved.model.path}, decode {d.resolved.model.path}.",
            "Write the same --model-path on both.",
            ("--model-path",),
        )


@rule("pd-speculation", "error", PAGE)
def speculation(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Where both roles speculate, algorithm, draft and block agree; a draft on prefill alone is wasted."""
    if not _both(p, d):
        return
    if p.speculates and d.speculates:
        for field, flag in (
            ("speculative_algorithm", "--speculative-algorithm"),
            ("speculative_draft_model_path", "--speculative-draft-model-path"),
            ("speculative_num_draft_tokens", "--speculative-dspark-block-size"),
        ):
            if p[field] != d[field]:
                yield Says(
                    f"{flag.removeprefix('--')}: prefill {p[field]}, decode {d[field]}.",
                    f"Write the same {flag} on both.",
                    (flag,),
                )
    elif p.speculates:
        yield Says(
            f"Prefill computes a draft ({p['speculative_algorithm']}) that decode does not use.",
            "Speculate on decode too, or on neither.",
            ("--speculative-algorithm",),
            pool="prefill",
            severity="advice",
        )


@rule("pd-dcp", "error", CONNECT)
def dcp(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Token ownership can be widened from prefill to decode, never gathered: DCP 1 to N, or the same on both."""
    if not _both(p, d):
        return
    left, right = p["dcp_size"], d["dcp_size"]
    if left not in (1, right):
        yield Says(
            f"Prefill DCP {left} to decode DCP {right} is not supported: 1 to N or N to N is.",
            flags=("--dcp-size",),
            edits=remove("--dcp-size", *(("--dcp-comm-backend",) if p.wrote("--dcp-comm-backend") else ())),
            pool="prefill",
        )
    if right > 1 and p["attn_cp_size"] > 1:
        yield Says(
            f"Decode DCP {right} takes KV from a prefill server without attention CP, not {p['attn_cp_size']}.",
            flags=("--attn-cp-size",),
            edits=remove("--attn-cp-size", "--enable-prefill-cp", "--cp-strategy"),
            pool="prefill",
        )


@rule("pd-dcp-release", "error", "sgl-project/sglang pull request 33043", until="0.5.18")
def dcp_release(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """DCP 1 to N with a draft on both roles needs a build with pull request 33043."""
    if _both(p, d) and p["dcp_size"] != d["dcp_size"] and p.speculates and d.speculates:
        yield Says(
            f"DCP {p['dcp_size']} to {d['dcp_size']} with a draft on both roles needs a build with pull request 33043; "
            f"in SGLang {d.engine} requests hang without a word.",
            "Use a later release on both roles.",
            ("--dcp-size", "--speculative-algorithm"),
        )


@rule("pd-pp", "error", CONNECT)
def pipeline(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Stages map one to one, or all to one."""
    if _both(p, d) and d["pp_size"] not in (1, p["pp_size"]):
        yield Says(
            f"Prefill PP {p['pp_size']} to decode PP {d['pp_size']} has no mapping: 1 or {p['pp_size']} has.",
            flags=("--pp-size",),
            edits=(write("--pp-size", p["pp_size"]),) if p["pp_size"] > 1 else (),
            fix="" if p["pp_size"] > 1 else "Write decode without --pp-size, its ranks in --tp-size.",
            pool="decode",
        )


@rule("pd-tp", "advice", "sgl-project/sglang issue 23746")
def tensor(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """States of a hybrid model may not slice evenly between different TP sizes; Kimi-K3's pairs are published."""
    if not _both(p, d) or p.is_k3 or p.ledger.inputs is None or not p.ledger.inputs.hybrid:
        return
    left, right = p["tp_size"] // p["attn_dp_size"], d["tp_size"] // d["attn_dp_size"]
    if left != right:
        yield Says(
            f"Attention TP {left} to {right} is not known to be sound for this hybrid model: states were cut wrongly.",
            "Use the same TP on both roles, or compare answers with a unified server.",
            ("--tp-size",),
            pool="decode",
        )


@rule("pd-image", "error", "sgl-project/sglang pull request 32541")
def image(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Both roles run the same build."""
    if p.image and d.image and p.image != d.image:
        yield Says(
            f"Prefill runs {p.image}, decode {d.image}: what they send each other may differ.",
            "Use one image on both, by digest.",
            ("image",),
            severity="error" if "@sha256:" in p.image and "@sha256:" in d.image else "advice",
        )


@rule("pd-rendezvous", "error", PAGE)
def rendezvous(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Each pool has a rendezvous of its own."""
    left, right = p.value("--dist-init-addr"), d.value("--dist-init-addr")
    if left is None or left != right or "<" in left or "$" in left:
        return
    if p.several_nodes and d.several_nodes:
        yield Says(
            f"Both pools meet at {left}: they become one, and different node counts wait for ever.",
            "Give each pool the address of its own node 0.",
            ("--dist-init-addr",),
        )


@rule("pd-store", "error", PAGE)
def store(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The Ascend store is one address, the prefill head's, on both roles."""
    left, right = p.env.get(STORE), d.env.get(STORE)
    if left is None and right is None:
        return
    if left != right and left is not None:
        yield Says(
            f"{STORE} differs: the roles register their buffers in different places.",
            flags=(STORE,),
            edits=(Edit("env", STORE, left),),
            pool="decode",
        )
        return
    head = (p.value("--dist-init-addr") or "").rpartition(":")[0]
    named = urlsplit(left or "").hostname if left and "<" not in left and "$" not in left else None
    if named and head and "<" not in head and "$" not in head and named != head:
        yield Says(
            f"{STORE} names {named}; the prefill head is {head}.",
            f"Use tcp://{head}:PORT on both roles.",
            (STORE,),
            pool="prefill",
        )


@rule("pd-limits", "capacity", PAGE)
def fan_out(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A prefill server that admits far more than decode parks KV on the decode side."""
    left, right = p.ledger.admitted, d.ledger.admitted
    asked = p.workload.concurrency
    if left is None or right is None or asked is None or right >= asked:
        return
    yield Says(
        f"{asked} requests are asked of the pair; decode runs {right} of them, prefill {left}.",
        "Size decode for the concurrency: it holds every running request.",
        ("--max-running-requests",),
        pool="decode",
        severity="advice",
    )


@rule("pd-open-report", "advice", "sgl-project/sglang issue 36859 (open)")
def open_report(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Wrong or mixed answers under load were reported for this combination of PD, DSPARK and HiCache."""
    if not _both(p, d) or not p.is_k3 or not d.speculates or not p["enable_hierarchical_cache"]:
        return
    if d["disaggregation_transfer_backend"] == "nixl":
        yield Says(
            "Looping or mixed answers under load are reported, unexplained, for this pair: nixl, DSPARK and HiCache.",
            "Compare answers at full load with those of a single request before release.",
            ("--enable-hierarchical-cache", "--speculative-algorithm"),
        )


RULES = (
    roles,
    kv_dtype,
    page_size,
    transfer_backend,
    state_dtype,
    attention,
    model,
    speculation,
    dcp,
    dcp_release,
    pipeline,
    tensor,
    image,
    rendezvous,
    store,
    fan_out,
    open_report,
)
