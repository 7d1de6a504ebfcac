"""Ports and addresses of one server."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import write
from perilune.plan.rules.rule import ENGINE, PAGE, Says, rule
from perilune.plan.rules.subject import Subject, whole

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST = 65535


def rendezvous_port(s: Subject) -> int | None:
    """The port of --dist-init-addr, when it is a number."""
    text = (s.value("--dist-init-addr") or "").rpartition(":")[2]
    return whole(text)


@rule("port-collision", "error", f"{ENGINE}, port allocation")
def collision(s: Subject) -> Iterator[Says]:
    """The API, the rendezvous and the bootstrap of one server need ports of their own."""
    if not s.parsed:
        return
    api, meet = s["port"], rendezvous_port(s)
    bootstrap = s["disaggregation_bootstrap_port"] if s.role == "prefill" else None
    if meet is not None and meet == api:
        yield Says(
            f"--dist-init-addr and --port are both {api}: the rendezvous takes the API's port.",
            f"Write --dist-init-addr with another port, such as {20000 if api != 20000 else 20100}.",
            ("--dist-init-addr", "--port"),
        )
    if bootstrap is not None and bootstrap == api and not s.on_env("SGLANG_RUST_SERVER"):
        yield Says(
            f"--disaggregation-bootstrap-port and --port are both {api}.",
            flags=("--disaggregation-bootstrap-port", "--port"),
            edits=(write("--disaggregation-bootstrap-port", 8998 if api != 8998 else 8999),),
        )


@rule("port-range", "error", ENGINE)
def port_range(s: Subject) -> Iterator[Says]:
    """A port is a number up to 65535."""
    for flag in ("--port", "--disaggregation-bootstrap-port"):
        written = s.value(flag)
        number = whole(written)
        if number is not None and not 0 < number <= MOST:
            yield Says(f"{flag} {written} is not a port.", flags=(flag,), edits=(write(flag, 30000),))


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
