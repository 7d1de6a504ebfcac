"""What a prefill and a decode server must agree on, judged on resolved values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from urllib.parse import urlsplit

from perilune.plan.rules.ascend import STORE
from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.ports import LOOPBACK
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject

Router = Sequence[str] | None
CONNECT = f"{ENGINE}, checks when the decode side connects"
ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


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


def _same(flag: str, field: str, what: str) -> Callable[[Subject, Subject, Router], Iterator[Says]]:
    def check(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
        if not _both(p, d) or p[field] == d[field]:
            return
        wanted, pool = (p[field], "decode") if p.wrote(flag) or not d.wrote(flag) else (d[field], "prefill")
        edits = (write(flag, wanted),) if wanted not in (None, "", "auto") else ()
        fix = "" if edits else f"Write the same {flag} on both."
        yield Says(f"{what}: prefill {p[field]}, decode {d[field]}.", fix, (flag,), edits, pool=pool)

    check.__doc__ = f"{what}; both roles must resolve to the same."
    return check


kv_dtype = rule("pd-kv-dtype", "error", CONNECT)(
    _same("--kv-cache-dtype", "kv_cache_dtype", "The KV dtypes differ, and the transfer is refused")
)
page_size = rule("pd-page-size", "error", CONNECT)(
    _same("--page-size", "page_size", "The page sizes differ, and the transfer is refused")
)
transfer_backend = rule("pd-transfer", "error", CONNECT)(
    _same("--disaggregation-transfer-backend", "disaggregation_transfer_backend", "The transfer backends differ")
)
state_dtype = rule("pd-state-dtype", "error", CONNECT)(
    _same("--mamba-ssm-dtype", "mamba_ssm_dtype", "The state dtypes differ")
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


def router_ends(router: Router, flag: str) -> list[tuple[str, str | None]]:
    """The (URL, bootstrap port) pairs after every `--prefill` or `--decode` of a router command."""
    words = list(router or ())
    found = []
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            after = words[index + 2] if index + 2 < len(words) else ""
            found.append((words[index + 1], after if after.isdigit() or after == "none" else None))
    return found


@rule("pd-bootstrap", "error", PAGE)
def bootstrap(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The number after the router's --prefill is the prefill server's bootstrap port."""
    if not p.parsed or router is None:
        return
    real = p["disaggregation_bootstrap_port"]
    for url, given in router_ends(router, "--prefill"):
        port = _port(url)
        if given is not None and given.isdigit() and int(given) != real:
            yield Says(
                f"The router asks for bootstrap at port {given}; the prefill server has it at {real}, "
                "and only the decode worker registers.",
                f"Write `--prefill {url} {real}` in the router's command.",
                ("--disaggregation-bootstrap-port",),
                (write("--disaggregation-bootstrap-port", given),),
                pool="prefill",
            )
        if given is None and real != 8998:
            yield Says(
                f"The router names no bootstrap port, so 8998 is taken; the prefill server has {real}.",
                f"Write `--prefill {url} {real}` in the router's command.",
                ("--disaggregation-bootstrap-port",),
                pool="prefill",
            )
        if port is not None and port == real and port != p["port"]:
            yield Says(
                f"The router's --prefill names {url}, which is the bootstrap port, not the API's {p['port']}.",
                f"Write `--prefill` with port {p['port']}, then {real}.",
                ("--port",),
                pool="prefill",
            )


@rule("pd-router-port", "error", PAGE)
def router_port(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The router reaches each server at the port it serves."""
    for subject, flag in ((p, "--prefill"), (d, "--decode")):
        if not subject.parsed or "--port" in subject.unknown:
            continue
        for url, _ in router_ends(router, flag):
            port = _port(url)
            if port is not None and port not in (subject["port"], p["disaggregation_bootstrap_port"]):
                yield Says(
                    f"The router's {flag} names {url}; the server serves port {subject['port']}.",
                    flags=("--port",),
                    edits=(write("--port", port),),
                    pool=flag.removeprefix("--"),
                )


@rule("pd-router-host", "error", "ai-dynamo/dynamo issue 4855")
def router_host(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A server that listens on the loopback is not reached at another address."""
    for subject, flag in ((p, "--prefill"), (d, "--decode")):
        if not subject.parsed or str(subject["host"]) not in LOOPBACK:
            continue
        for url, _ in router_ends(router, flag):
            host = _host(url)
            if host and host not in LOOPBACK:
                yield Says(
                    f"The router reaches {flag.removeprefix('--')} at {host}, but it listens on {subject['host']}.",
                    flags=("--host",),
                    edits=(write("--host", "0.0.0.0"),),  # noqa: S104 - the advice for a server behind a router
                    pool=flag.removeprefix("--"),
                )


@rule("pd-router-options", "advice", "sglang-router 0.3.2 and SGLang 0.5.23 run together")
def router_options(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Router options that do not work with a PD pair of this release."""
    words = tuple(router or ())
    if "--dp-aware" in words and ("--pd-disaggregation" in words or router_ends(router, "--prefill")):
        yield Says(
            "--dp-aware with --pd-disaggregation sends requests to a wrong address in sglang-router 0.3.2.",
            "Leave --dp-aware out.",
            severity="error",
        )
    if any(a == "--policy" and b == "power_of_two" for a, b in pairwise(words)):
        yield Says(
            "The policy power_of_two asks /get_load, which 0.5.23 no longer serves: it sees no load.",
            "Use --policy cache_aware or round_robin.",
        )


@rule("pd-router-block", "advice", "llm-d/llm-d pull request 2500")
def router_block(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A router that scores prefixes hashes blocks of the engine's page size."""
    words = tuple(router or ())
    for flag, value in pairwise(words):
        if flag in ("--block-size", "--kv-cache-block-size", "--hash-block-size") and value.isdigit() and p.accepted:
            page = p["page_size"] or 1
            if int(value) != page:
                yield Says(
                    f"The router hashes blocks of {value} tokens, the engine has pages of {page}: no prefix matches.",
                    f"Write {flag} {page} in the router's command, or --page-size {value} on both roles.",
                    ("--page-size",),
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


@rule("pd-ports", "advice", PAGE)
def same_host(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """On one host the roles need ports of their own."""
    if not p.parsed or not d.parsed or p["port"] != d["port"] or {"--port"} & {*p.unknown, *d.unknown}:
        return
    hosts = [{_host(url) for url, _ in router_ends(router, flag)} - {""} for flag in ("--prefill", "--decode")]
    one = bool(hosts[0] & hosts[1])
    if one or router is None:
        yield Says(
            f"Both roles serve port {p['port']}" + ("." if one else ": on one host the second does not start."),
            flags=("--port",),
            edits=(write("--port", p["port"] + 100),),
            severity="error" if one else None,
            pool="decode",
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


def _split(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def _host(url: str) -> str:
    return _split(url)[0]


def _port(url: str) -> int | None:
    return _split(url)[1]


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
    bootstrap,
    router_port,
    router_host,
    router_options,
    router_block,
    image,
    rendezvous,
    same_host,
    store,
    fan_out,
    open_report,
)
