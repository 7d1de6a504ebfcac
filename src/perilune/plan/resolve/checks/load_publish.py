"""Where a server publishes its load (`--load-publish-endpoint`), beside its KV events."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv6Address
from typing import Literal

import msgspec

from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import dp_ranks

FLAG = "--load-publish-endpoint"
TCP = "tcp://"
MAX_PORT = 65535
WILDCARD_HOSTS = frozenset({"*", "0.0.0.0", "::"})  # noqa: S104 - compared with, never bound


class KVEvents(msgspec.Struct, frozen=True):
    """The fields of `--kv-events-config` that decide where events and load go."""

    publisher: str = "null"
    endpoint: str = "tcp://*:5557"
    bind: bool | None = None
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""
    format: Literal["default", "dynamo"] = "default"


def check_load_publish(r: Resolution) -> None:
    """Check that the load range can be bound, is advertised, and overlaps no other range."""
    mode = (r["load_publish_endpoint"] or "").strip()
    if mode.lower() in ("", "off"):
        return
    if not r["kv_events_config"]:
        raise r.reject(
            f"{FLAG} requires --kv-events-config: routers discover the load range through /server_info's "
            "kv_events block, absent without a publisher."
        )
    try:
        events = msgspec.json.decode(r["kv_events_config"], type=KVEvents, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise r.reject(f"--kv-events-config is not parseable: {error}") from None
    if events.publisher == "null" or not events.endpoint:
        raise r.reject(
            f"{FLAG} needs an active --kv-events-config publisher; got publisher='null' or an empty endpoint."
        )
    ranks = dp_ranks(r)
    base = _packed_base(r, events, ranks) if mode.lower() == "auto" else _given_base(r, events, mode, ranks)
    if base + ranks - 1 > MAX_PORT:
        raise r.reject(f"load port range from {base} would run past the u16 ceiling")


def _packed_base(r: Resolution, events: KVEvents, ranks: int) -> int:
    """The first port after the KV-event range, and after the replay range if that is in the way."""
    host, port = _tcp(events.endpoint)
    if port is None or host not in WILDCARD_HOSTS:
        raise r.reject(
            f"{FLAG}=auto needs a bindable wildcard-host tcp:// --kv-events-config endpoint to pack after; "
            f"{events.endpoint!r} is not one"
        )
    base = port + ranks
    _, replay = _tcp(events.replay_endpoint)
    return replay + ranks if replay is not None and abs(base - replay) < ranks else base


def _given_base(r: Resolution, events: KVEvents, mode: str, ranks: int) -> int:
    _, kv_port = _tcp(events.endpoint)
    if kv_port is None:
        raise r.reject(
            f"{FLAG}={mode!r} needs a routable tcp:// --kv-events-config endpoint: routers discover the load "
            f"range through /server_info's kv_events block, absent for endpoint {events.endpoint!r}, so the "
            "socket would be bound but never advertised"
        )
    host, base = _tcp(mode)
    if base is None or host not in WILDCARD_HOSTS:
        raise r.reject(
            f"{FLAG}={mode!r} is not a bindable tcp:// address (a concrete host would be connected to, not bound)"
        )
    for port in (kv_port, _tcp(events.replay_endpoint)[1]):
        if port is not None and abs(base - port) < ranks:
            raise r.reject(
                f"{FLAG} range [{base}, {base + ranks}) overlaps the kv-events range [{port}, {port + ranks})"
            )
    return base


def _tcp(endpoint: str | None) -> tuple[str, int | None]:
    """Host and port of a tcp:// endpoint; the port is None when it is no usable one."""
    if not endpoint or not endpoint.startswith(TCP):
        return "", None
    host, separator, digits = endpoint.removeprefix(TCP).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ipv6(host):
            return "", None
    elif host.startswith("[") or (":" in host and _is_ipv6(host)):
        return "", None
    if not separator or not host or not digits.isdecimal() or len(digits) > 9:
        return "", None
    port = int(digits)
    return host, port if 0 < port <= MAX_PORT else None


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return True
