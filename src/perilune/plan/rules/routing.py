"""A pair's router: the addresses and ports it names, and the ones the servers have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from urllib.parse import urlsplit

from perilune.plan.rules.edits import write
from perilune.plan.rules.ports import DEFAULT_BOOTSTRAP, LOOPBACK, next_port, ports
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject, whole

Router = Sequence[str] | None
ROUTER = f"sglang-router 0.3.2 and {ENGINE} run together"


def router_ends(router: Router, flag: str) -> list[tuple[str, str | None]]:
    """The (URL, bootstrap port) pairs after every `--prefill` or `--decode` of a router command."""
    words = list(router or ())
    found = []
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            after = words[index + 2] if index + 2 < len(words) else ""
            found.append((words[index + 1], after if whole(after) is not None or after == "none" else None))
    return found


def only_host(router: Router, flag: str) -> str:
    """The host that a router names after `flag`, where it names just one, and not itself."""
    hosts = {_host(url) for url, _ in router_ends(router, flag)} - {""}
    return hosts.pop() if len(hosts) == 1 and not hosts & {*LOOPBACK} else ""


def _own_ends(s: Subject, router: Router, flag: str) -> list[tuple[str, str | None]]:
    """The router's ends that can mean this server: of several, those at its port where there are any."""
    ends = list(router_ends(router, flag))
    own = [end for end in ends if _port(end[0]) == s["port"]]
    return own if own and len(ends) > 1 else ends


@rule("pd-bootstrap", "error", PAGE)
def bootstrap(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The number after the router's --prefill is the prefill server's bootstrap port."""
    if not p.parsed or router is None:
        return
    real = p["disaggregation_bootstrap_port"]
    for url, given in _own_ends(p, router, "--prefill"):
        port, asked = _port(url), DEFAULT_BOOTSTRAP if given is None else whole(given)
        if asked not in (None, real):
            named = "names no bootstrap port, so" if given is None else "asks for bootstrap at"
            taken = f"{asked} is taken" if given is None else f"port {asked}"
            free = asked != p["port"]
            yield Says(
                f"The router {named} {taken}; the prefill server has it at {real}.",
                "" if free else f"Write `--prefill {url} {real}` in the router's command.",
                ("--disaggregation-bootstrap-port",),
                (write("--disaggregation-bootstrap-port", asked),) if free else (),
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
        for url, _ in _own_ends(subject, router, flag):
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


@rule("pd-router-dp-aware", "error", ROUTER)
def dp_aware(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """--dp-aware does not work with a PD pair."""
    words = tuple(router or ())
    if "--dp-aware" in words and ("--pd-disaggregation" in words or router_ends(router, "--prefill")):
        yield Says(
            "--dp-aware with --pd-disaggregation sends requests to a wrong address in sglang-router 0.3.2.",
            "Leave --dp-aware out.",
        )


@rule("pd-router-policy", "advice", ROUTER)
def policy(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """The policy power_of_two asks for loads that this release does not serve."""
    if any(a == "--policy" and b == "power_of_two" for a, b in pairwise(router or ())):
        yield Says(
            f"The policy power_of_two asks /get_load, which {ENGINE} no longer serves: it sees no load.",
            "Use --policy cache_aware or round_robin.",
        )


@rule("pd-router-block", "advice", "llm-d/llm-d pull request 2500")
def router_block(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """A router that scores prefixes hashes blocks of the engine's page size."""
    words = tuple(router or ())
    for flag, value in pairwise(words):
        if flag in ("--block-size", "--kv-cache-block-size", "--hash-block-size") and p.accepted:
            page = p["page_size"] or 1
            if whole(value) not in (None, page):
                yield Says(
                    f"The router hashes blocks of {value} tokens, the engine has pages of {page}: no prefix matches.",
                    f"Write {flag} {page} in the router's command, or --page-size {value} on both roles.",
                    ("--page-size",),
                )


def _same_port(p: Subject, d: Subject) -> bool:
    """Whether both roles serve one port, on machines that no file tells apart."""
    known = p.parsed and d.parsed and not {"--port"} & {*p.unknown, *d.unknown} and not (p.host and d.host)
    return known and bool(p["port"] == d["port"])


def _one_host(router: Router) -> bool:
    """Whether the router reaches a prefill and a decode server at one host."""
    prefill, decode = ({_host(url) for url, _ in router_ends(router, flag)} for flag in ("--prefill", "--decode"))
    return bool((prefill & decode) - {""})


@rule("pd-ports", "error", PAGE)
def same_host(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """On one host the roles need ports of their own."""
    if _same_port(p, d) and _one_host(router):
        yield Says(
            f"The router reaches both roles at one host, and both serve port {p['port']}: the second does not start.",
            f"Write --port {next_port(p['port'], {*ports(p).values(), *ports(d).values()})} on decode and in its URL "
            "after the router's --decode.",
            ("--port",),
            pool="decode",
        )


@rule("pd-ports-unclear", "advice", PAGE)
def maybe_same_host(p: Subject, d: Subject, router: Router) -> Iterator[Says]:
    """Roles with one port are fine on two machines only, and nothing says where they run."""
    if _same_port(p, d) and router is None:
        yield Says(
            f"Both roles serve port {p['port']}: on one host the second does not start.",
            flags=("--port",),
            edits=(write("--port", next_port(p["port"], {*ports(p).values(), *ports(d).values()})),),
            pool="decode",
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
    bootstrap,
    router_port,
    router_host,
    dp_aware,
    policy,
    router_block,
    same_host,
    maybe_same_host,
)
