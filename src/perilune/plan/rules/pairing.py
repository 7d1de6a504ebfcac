"""A prefill and a decode server as a pair: roles, model, image, addresses and size."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from perilune.plan.rules.agreement import CONNECT, both
from perilune.plan.rules.ascend import STORE
from perilune.plan.rules.edits import Edit, write
from perilune.plan.rules.reaching import reach
from perilune.plan.rules.routing import Router, only_host
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.splitting import running
from perilune.plan.rules.subject import Subject


@rule("pd-roles", "error")
def roles(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A pair is one prefill and one decode server."""
    for subject, wanted in ((p, "prefill"), (d, "decode")):
        if subject.parsed and subject.role != wanted:
            yield Says(
                f"The {wanted} server runs as a {subject.role} one.",
                flags=("--disaggregation-mode",),
                edits=(write("--disaggregation-mode", wanted),),
                pool=wanted,
            )


def _models_known(p: Subject, d: Subject) -> bool:
    """Whether both roles name their models."""
    return all(s.parsed and not s.no_model and "--model-path" not in s.unknown for s in (p, d))


@rule("pd-model", "error", CONNECT)
def model(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Both roles serve the same model."""
    if _models_known(p, d) and p.resolved.model.raw.get("architectures") != d.resolved.model.raw.get("architectures"):
        yield Says(
            f"Prefill serves {p.resolved.model.path}, decode {d.resolved.model.path}.",
            "Write the same --model-path on both.",
            ("--model-path",),
        )


@rule("pd-checkpoint", "advice")
def checkpoint(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Roles with weights in different formats continue one answer with two sets of weights."""
    if not _models_known(p, d) or p.is_k3 != d.is_k3:
        return
    left, right = p.resolved.model, d.resolved.model
    if left.quant_method != right.quant_method or left.quant_format != right.quant_format:
        yield Says(
            f"Prefill serves {left.path}, decode {right.path}: one answer comes from two sets of weights.",
            "Write the same --model-path on both, or compare answers with a unified server.",
            ("--model-path",),
        )


def _images(p: Subject, d: Subject, *, by_digest: bool) -> tuple[str, str] | None:
    """The two images where they differ: both named by digest, or at least one by a tag. Each platform has its own."""
    if not p.image or not d.image or p.image == d.image or p.platform.id != d.platform.id:
        return None
    digests = "@sha256:" in p.image and "@sha256:" in d.image
    return (p.image, d.image) if digests == by_digest else None


@rule("pd-image", "error", "sgl-project/sglang pull request 32541")
def image(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Both roles run the same build."""
    if found := _images(p, d, by_digest=True):
        yield Says(
            f"Prefill runs {found[0]}, decode {found[1]}: what they send each other may differ.",
            "Use one image on both.",
            ("image",),
        )


@rule("pd-image-tag", "advice", "sgl-project/sglang pull request 32541")
def image_tag(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Images of two names may be two builds."""
    if found := _images(p, d, by_digest=False):
        yield Says(
            f"Prefill runs {found[0]}, decode {found[1]}, which may be different builds.",
            "Use one image on both, by digest.",
            ("image",),
        )


@rule("pd-rendezvous", "error", PAGE)
def rendezvous(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Each pool has a rendezvous of its own."""
    left, right = p.value("--dist-init-addr"), d.value("--dist-init-addr")
    if left is None or left != right or "<" in left or "$" in left:
        return
    if not p.several_nodes or not d.several_nodes:
        return
    host, _, port = left.rpartition(":")
    named = ((pool, only_host(router, f"--{pool}")) for pool in ("decode", "prefill"))
    pool, own = next(((pool, one) for pool, one in named if one and one != host), ("", ""))
    yield Says(
        f"Both pools meet at {left}: they become one, and different node counts wait for ever.",
        "" if own else "Give each pool the address of its own node 0.",
        ("--dist-init-addr",),
        (write("--dist-init-addr", f"{own}:{port}"),) if own else (),
        pool=pool,
    )


@rule("pd-store", "error", PAGE)
def store(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The Ascend store is one address, the prefill head's, on both roles."""
    left, right = p.env.get(STORE), d.env.get(STORE)
    ours, theirs = _store_host(left), _store_host(right)
    if left != right and (ours or theirs):
        pool, wanted = ("decode", left) if ours else ("prefill", right)
        yield Says(
            f"{STORE} differs: the roles register their buffers in different places.",
            flags=(STORE,),
            edits=(Edit("env", STORE, wanted),),
            pool=pool,
        )
        return
    head = (p.value("--dist-init-addr") or "").rpartition(":")[0]
    if ours and _is_other(ours, head):
        port = (left or "").rpartition(":")[2].rstrip("/")
        yield Says(
            f"{STORE} names {ours}; the prefill head is {head}, where every rank must register.",
            flags=(STORE,),
            edits=(Edit("env", STORE, f"tcp://{head}:{port}"),),
            pool="prefill",
        )


def _store_host(url: str | None) -> str:
    """The host that a store's URL names; empty where it is none yet."""
    try:
        parts = urlsplit(url or "")
        return (parts.hostname or "") if parts.port else ""
    except ValueError:
        return ""


def _is_other(one: str, other: str) -> bool:
    """Whether two addresses are surely of two hosts: a name may be that of any address."""
    try:
        return ip_address(one) != ip_address(other)
    except ValueError:
        return False


@rule("pd-limits", "capacity", PAGE)
def pair_admits(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Decode holds every running request of a pair: it runs fewer than are asked for."""
    asked = p.workload.concurrency
    if asked is None or not p.ledger.boots or not d.ledger.boots:
        return
    runs = running(d.ledger, d.workload)[0]
    if runs >= asked:
        return
    fix, edits = reach(d, asked, runs)
    yield Says(
        f"{asked} requests are asked of the pair, and decode, which holds all that run, runs {runs}.",
        fix,
        ("--max-running-requests",),
        edits,
        pool="decode",
    )


@rule("pd-open-report", "advice", "sgl-project/sglang issue 36859 (open)")
def open_report(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Wrong or mixed answers under load were reported for this combination of PD, DSPARK and HiCache."""
    if not both(p, d) or not p.is_k3 or not d.speculates or not p["enable_hierarchical_cache"]:
        return
    if d["disaggregation_transfer_backend"] == "nixl":
        yield Says(
            "Looping or mixed answers under load are reported, unexplained, for this pair: nixl, DSPARK and HiCache.",
            "Compare answers at full load with those of a single request before release.",
            ("--enable-hierarchical-cache", "--speculative-algorithm"),
        )


RULES = (roles, model, checkpoint, image, image_tag, rendezvous, store, pair_admits, open_report)
