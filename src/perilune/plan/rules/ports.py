"""Ports and addresses of one server."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from perilune.plan.rules.edits import Edit, remove, write
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject, whole

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST = 65535
PORT, BOOTSTRAP, MEET = "--port", "--disaggregation-bootstrap-port", "--dist-init-addr"
DEFAULT_PORT, DEFAULT_BOOTSTRAP, DEFAULT_MEET = 30000, 8998, 20000
OTHERS = ("--nccl-port", "--grpc-port", "--encoder-bootstrap-port")  # taken where they are written
STEP = 100  # from one port to the next that is proposed
APART = 233  # what the engine adds to the API's port where attention DP has no rendezvous to count from
DERIVED = range(1, 7)  # what attention DP adds to that port for its own sockets


def rendezvous_port(s: Subject) -> int | None:
    """The port of --dist-init-addr, when it is a number."""
    text = (s.value("--dist-init-addr") or "").rpartition(":")[2]
    return whole(text)


def ports(s: Subject) -> dict[str, int]:
    """The ports that a server listens on, by the flag that names each."""
    found: dict[str, int | None] = {
        PORT: s["port"],
        MEET: rendezvous_port(s) if _meets_here(s) else None,
        BOOTSTRAP: s["disaggregation_bootstrap_port"] if s.role == "prefill" else None,
        **{flag: whole(s.value(flag)) for flag in OTHERS},
    }
    return {flag: port for flag, port in found.items() if port is not None and flag not in s.unknown}


@dataclass(frozen=True, slots=True)
class Taken:
    """The flag that decides a port, and whether attention DP derives the port from it."""

    flag: str
    derived: bool = False

    def __str__(self) -> str:
        return f"the ports that attention DP derives from {self.flag}" if self.derived else self.flag


def derived_ports(s: Subject) -> tuple[int, ...]:
    """The ports that attention DP opens on the first node besides those that flags name."""
    if s["attn_dp_size"] < 2 or not _meets_here(s) or {PORT, MEET} & set(s.unknown):
        return ()
    first = rendezvous_port(s)
    if first is None and not s.wrote(MEET):
        first = s["port"] + APART if s["port"] + APART <= MOST else s["port"] - APART
    if first is None:
        return ()
    last = DERIVED[-1]
    return tuple(first + n if first + last <= MOST else first - last - 2 + n for n in DERIVED)


def taken(s: Subject) -> dict[int, Taken]:
    """Every port that a server listens on, with what decides it."""
    own = MEET if s.wrote(MEET) else PORT
    derived = {port: Taken(own, derived=True) for port in derived_ports(s)}
    return derived | {port: Taken(flag) for flag, port in ports(s).items()}


def _meets_here(s: Subject) -> bool:
    """Whether the node is the first of its server, where the others meet it."""
    return bool(s["node_rank"] == 0) and "--node-rank" not in s.unknown


def free_port(first: int, taken: Collection[int]) -> int:
    """The port `first`, or the nearest step above it that nothing takes."""
    return next(port for port in range(first, MOST, STEP) if port not in taken)


def next_port(port: int, taken: Collection[int]) -> int:
    """A port near `port` that nothing takes."""
    return free_port(port + STEP if 0 < port < MOST - STEP * (len(taken) + 1) else DEFAULT_PORT, taken)


@rule("port-collision", "error", f"{ENGINE}, port allocation")
def collision(s: Subject) -> Iterator[Says]:
    """The API, the rendezvous and the bootstrap of one server need ports of their own."""
    if not s.parsed:
        return
    found, (address, _, meet) = ports(s), (s.value(MEET) or "").rpartition(":")
    if found.get(MEET) is not None and found[MEET] == found.get(PORT):
        yield Says(
            f"{MEET} and {PORT} are both {meet}: the rendezvous takes the API's port.",
            flags=(MEET, PORT),
            edits=(write(MEET, f"{address}:{free_port(DEFAULT_MEET, found.values())}"),),
        )
    derived = derived_ports(s)
    for flag in (PORT, BOOTSTRAP):
        if found.get(flag) in derived:
            yield Says(
                f"Attention DP takes ports {derived[0]} to {derived[-1]} as well, and {flag} is {found[flag]}.",
                flags=(MEET, flag) if s.wrote(MEET) else (flag,),
                edits=(
                    write(MEET, f"{address}:{free_port(DEFAULT_MEET, {*found.values(), *derived})}")
                    if s.wrote(MEET)
                    else write(flag, free_port(DEFAULT_BOOTSTRAP, {*found.values(), *derived})),
                ),
            )
    if found.get(BOOTSTRAP) is not None and found[BOOTSTRAP] == found.get(PORT) and not s.on_env("SGLANG_RUST_SERVER"):
        yield Says(
            f"{BOOTSTRAP} and {PORT} are both {found[PORT]}.",
            flags=(BOOTSTRAP, PORT),
            edits=(write(BOOTSTRAP, free_port(DEFAULT_BOOTSTRAP, found.values())),),
        )


@rule("port-range", "error", ENGINE)
def port_range(s: Subject) -> Iterator[Says]:
    """A port is a number from 1 to 65535."""
    address, _, meet = (s.value(MEET) or "").rpartition(":")
    others = ((flag, None) for flag in OTHERS)
    for flag, default in ((PORT, DEFAULT_PORT), (BOOTSTRAP, DEFAULT_BOOTSTRAP), (MEET, DEFAULT_MEET), *others):
        number = whole(meet if flag == MEET else s.value(flag))
        if number is None or 0 < number <= MOST:
            continue
        if default is None:
            edits: tuple[Edit, ...] = remove(flag)
        else:
            port = free_port(default, ports(s).values())
            edits = (write(flag, f"{address}:{port}" if flag == MEET else port),)
        yield Says(f"{flag} {s.value(flag)} names no port from 1 to {MOST}.", flags=(flag,), edits=edits)


@rule("port-loopback", "advice", "ai-dynamo/dynamo issue 4855")
def loopback(s: Subject) -> Iterator[Says]:
    """A PD role on 127.0.0.1 cannot be reached by its partner or a router on another machine."""
    if not s.parsed or s.role == "unified" or str(s["host"]) not in LOOPBACK or s.template:
        return
    what = "Bootstrap is served by prefill, and it" if s.role == "prefill" else "The decode server"
    yield Says(
        f"{what} listens on {s['host']}: no other machine or pod reaches it.",
        flags=("--host",),
        edits=(write("--host", "0.0.0.0"),),  # noqa: S104 - the advice for a server behind a router
        source=PAGE,
    )


RULES = (collision, port_range, loopback)
