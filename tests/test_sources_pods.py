"""What a manifest says around a server's command: probes, ports, Services and shared memory."""

from __future__ import annotations

import pytest

from perilune.plan.sources.documents import read_documents
from perilune.plan.sources.text import Text

COMMAND = "command: [sglang, serve, --model-path, moonshotai/Kimi-K3, --tp-size, '8', --host, 0.0.0.0{more}]"
SHM = "volumeMounts: [{name: shm, mountPath: /dev/shm/}]"
POD = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: k3}}
spec:
  template:
    metadata: {{labels: {{app: k3, role: server}}}}
    spec:
      containers:
        - name: k3
          {command}
          {around}
"""
SERVICE = """---
apiVersion: v1
kind: Service
metadata: {{name: k3}}
spec: {{selector: {{app: {app}}}, ports: [{{port: {port}{target}}}]}}
"""
PATIENT = "startupProbe: {httpGet: {path: /health, port: 30000}, failureThreshold: 180}"


def notes(*around: str, more: str = "", service: str = "") -> dict[str, str]:
    """The severity of each thing said, by its id; a mount of /dev/shm is there unless `around` has another."""
    lines = around if any("volumeMounts" in line or line == "no mount" for line in around) else (*around, SHM)
    text = POD.format(
        command=COMMAND.format(more=more), around="\n          ".join(line for line in lines if line != "no mount")
    )
    reading = read_documents(Text("pod.yaml", text + service))
    assert len(reading.servers) == 1
    return {note.id: note.severity for note in reading.notes}


@pytest.mark.parametrize(
    ("around", "more", "expected"),
    [
        ([], "", {}),
        (["ports: [{containerPort: 30000}]", PATIENT], "", {}),
        (["ports: [{containerPort: 8000}]"], "", {"pod-port": "advice"}),
        (["ports: [{containerPort: 8000}]"], ", --port, '8000'", {}),
        (["ports: [{containerPort: 8998}]"], ", --disaggregation-bootstrap-port, '8998'", {}),
        (["ports: [{containerPort: 8000}]"], ", --port, $(PORT)", {}),
        (["readinessProbe: {httpGet: {path: /health, port: 30001}}"], "", {"pod-probe-port": "error"}),
        (["readinessProbe: {tcpSocket: {port: 30001}}"], "", {"pod-probe-port": "error"}),
        (["readinessProbe: {httpGet: {path: /health, port: 30000}}"], "", {}),
        (["readinessProbe: {exec: {command: [curl, 127.0.0.1]}}"], ", --host=127.0.0.1", {}),
        (
            ["readinessProbe: {httpGet: {port: api}}", "ports: [{name: api, containerPort: 9}]"],
            "",
            {"pod-probe-port": "error", "pod-port": "advice"},
        ),
        (
            ["readinessProbe: {httpGet: {path: /health, port: 30000}}"],
            ", --host=127.0.0.1",
            {"pod-probe-host": "error"},
        ),
        (["livenessProbe: {httpGet: {port: 30000}}"], "", {"pod-liveness": "error"}),
        (["livenessProbe: {httpGet: {port: 30000}, initialDelaySeconds: 600}"], "", {"pod-liveness": "advice"}),
        (["livenessProbe: {httpGet: {port: 30000}, initialDelaySeconds: 1800}"], "", {}),
        (["livenessProbe: {httpGet: {port: 30000}, periodSeconds: 60, failureThreshold: 30}"], "", {}),
        (["livenessProbe: {httpGet: {port: 30000}}", PATIENT], "", {}),
        (["no mount"], "", {"pod-shared-memory": "advice"}),
        (["no mount"], ", --tp-size, '1'", {}),
        (["volumeMounts: [{name: m, mountPath: /models}]"], "", {"pod-shared-memory": "advice"}),
    ],
)
def test_what_stands_around_a_server_is_held_against_it(around: list[str], more: str, expected: dict[str, str]) -> None:
    assert notes(*around, more=more) == expected


@pytest.mark.parametrize(
    ("app", "port", "target", "wrong"),
    [
        ("k3", 80, ", targetPort: 30000", False),
        ("k3", 30000, "", False),
        ("k3", 80, "", True),
        ("k3", 80, ", targetPort: 8000", True),
        ("k3", 80, ", targetPort: unknown", False),
        ("other", 80, ", targetPort: 8000", False),
    ],
)
def test_a_service_sends_to_a_port_that_the_server_has(app: str, port: int, target: str, wrong: bool) -> None:
    service = SERVICE.format(app=app, port=port, target=target)
    assert notes(service=service) == ({"pod-service-port": "error"} if wrong else {})
