"""What a manifest says around a server's command against what the command does: probes, ports and shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perilune.facts.flags import defaults
from perilune.plan.sources.found import Found, Note
from perilune.plan.sources.nodes import Node, get, items, pairs, scalar, start_of
from perilune.plan.sources.text import Text

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOADING = 1800  # seconds that the weights of a large model can take from a network disk
CERTAIN = 120  # seconds in which no large model is loaded
PERIOD, FAILURES = 10, 3  # what Kubernetes takes where a probe does not say
SHARED = "/dev/shm"  # noqa: S108 - the mount of a container
WIDTHS = ("--tp-size", "--pp-size", "--attn-dp-size")
_NUMBER = re.compile(r"\d{1,7}")


def settings(text: Text, spec: Node, container: Node, found: Found) -> Iterator[Note]:
    """What the pod's `spec` and the server's container say that the server contradicts or will not survive."""
    yield from _probed(text, container, found)
    yield from _loading(text, container)
    yield from _shared_memory(text, spec, container, found)
    declared = _named_ports(container)
    port = _port(found)
    if declared and port is not None and not _ports(found) & set(declared.values()):
        at = get(container, "ports")
        told = ", ".join(map(str, declared.values()))
        message = f"The container declares port {told}, and the server listens on {port}."
        yield Note(message, _line(text, at), f"Write containerPort: {port}.", "pod-port")


def unreached(text: Text, service: Node, labels: Mapping[str, str], container: Node, found: Found) -> Note | None:
    """A Service that selects the server's pod and sends to none of its ports."""
    selector = {str(key.value): scalar(value) for key, value in pairs(get(service, "spec", "selector"))}
    port, sent = _port(found), [_target(one) for one in items(get(service, "spec", "ports"))]
    if not selector or not selector.items() <= labels.items() or port is None or not sent:
        return None
    known = [_numbered(text_, container) for text_ in sent]
    if any(one is None or one in _ports(found) for one in known):
        return None
    told = ", ".join(map(str, known))
    at = get(service, "spec", "ports")
    message = f"The Service sends to port {told} of the pod, and the server listens on {port}."
    return Note(message, _line(text, at), f"Write targetPort: {port}.", "pod-service-port", "error")


def labels_of(root: Node) -> dict[str, str]:
    """The labels of the pods that a manifest starts, where one template has them."""
    found = get(root, "metadata", "labels") if scalar(get(root, "kind")) == "Pod" else None
    found = found or get(root, "spec", "template", "metadata", "labels")
    return {str(key.value): scalar(value) or "" for key, value in pairs(found)}


def _probed(text: Text, container: Node, found: Found) -> Iterator[Note]:
    """Probes that ask where the server does not listen: they never succeed."""
    port, host = _port(found), found.server.value("--host") or str(defaults()["host"])
    asked = {name: get(container, name, "httpGet") or get(container, name, "tcpSocket") for name in PROBES}
    numbers = {name: _numbered(scalar(get(one, "port")), container) for name, one in asked.items() if one is not None}
    wrong = [name for name, number in numbers.items() if number is not None and number not in _ports(found)]
    if wrong and port is not None:
        told = ", ".join(sorted({str(numbers[name]) for name in wrong}))
        message = f"{_asking(wrong)} port {told}, and the server listens on {port}: {_outcome(wrong)}"
        yield Note(message, _line(text, asked[wrong[0]]), f"Write port: {port}.", "pod-probe-port", "error")
    outside = [name for name in numbers if get(asked[name], "host") is None]
    if outside and host in LOOPBACK:
        message = f"{_asking(outside)} the pod's address, and the server listens on {host} alone: {_outcome(outside)}"
        yield Note(message, _line(text, asked[outside[0]]), "Write --host 0.0.0.0.", "pod-probe-host", "error")


def _asking(probes: list[str]) -> str:
    return f"{probes[0]} asks" if len(probes) == 1 else f"{', '.join(probes[:-1])} and {probes[-1]} ask"


def _outcome(probes: list[str]) -> str:
    """What Kubernetes does where these never succeed."""
    ready = "the pod never becomes ready."
    return ready if probes == ["readinessProbe"] else "the container is stopped and started again, for ever."


def _loading(text: Text, container: Node) -> Iterator[Note]:
    """A liveness probe that stops the container before its model is loaded."""
    probe = get(container, "livenessProbe")
    if probe is None or get(container, "startupProbe") is not None:
        return
    delay = _whole(get(probe, "initialDelaySeconds"), 0)
    allowed = delay + _whole(get(probe, "periodSeconds"), PERIOD) * _whole(get(probe, "failureThreshold"), FAILURES)
    if allowed >= LOADING:
        return
    yield Note(
        f"livenessProbe stops the container after {allowed} s without an answer, and a server does not answer while "
        "it loads: up to half an hour for a large model from a network disk.",
        _line(text, probe),
        f"Add a startupProbe that allows {LOADING} s: periodSeconds: 10, failureThreshold: {LOADING // 10}.",
        "pod-liveness",
        "error" if allowed < CERTAIN else "advice",
    )


def _shared_memory(text: Text, spec: Node, container: Node, found: Found) -> Iterator[Note]:
    """Several ranks in a container with the shared memory that it has by default."""
    mounts = {scalar(get(one, "mountPath")) for one in items(get(container, "volumeMounts"))}
    wide = any((found.server.value(flag) or "1") not in ("0", "1") for flag in WIDTHS)
    if not wide or SHARED in {(path or "").rstrip("/") for path in mounts} or scalar(get(spec, "hostIPC")) == "true":
        return
    yield Note(
        f"No volume is mounted at {SHARED}: a container has 64 MiB there, and the ranks of a server share it.",
        _line(text, container),
        f"Mount an emptyDir with `medium: Memory` at {SHARED}.",
        "pod-shared-memory",
    )


def _port(found: Found) -> int | None:
    """The port the server listens on; None where that is not known before the start."""
    return _number(found.server.value("--port") or str(defaults()["port"]))


def _ports(found: Found) -> set[int]:
    """Every port that the command names."""
    values = [value for flag in found.server.flags if flag.name.endswith("-port") for value in flag.values]
    return {number for text in (*values, str(_port(found))) if (number := _number(text)) is not None}


def _named_ports(container: Node) -> dict[str, int]:
    """The ports a container declares, by name or place."""
    found = {}
    for place, one in enumerate(items(get(container, "ports"))):
        number = _number(scalar(get(one, "containerPort")))
        if number is not None:
            found[scalar(get(one, "name")) or str(place)] = number
    return found


def _target(port: Node) -> str | None:
    return scalar(get(port, "targetPort")) or scalar(get(port, "port"))


def _numbered(text: str | None, container: Node) -> int | None:
    """A port that is written as a number or by the name it has in the container."""
    return _number(text) if _number(text) is not None else _named_ports(container).get(text or "")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _whole(node: Node | None, default: int) -> int:
    number = _number(scalar(node))
    return default if number is None else number


def _line(text: Text, node: Node | None) -> int:
    return text.line(start_of(node)) if node is not None else 1
