"""The docker form of a server's command: one `docker run` a node, by vendor."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.facts.hardware import Platform
from perilune.facts.recipes import catalog
from perilune.plan.compose.flags import number, parse
from perilune.plan.compose.lines import Line, quoted, trusted
from perilune.plan.deployment import Pool

DEVICES_PER_LINE = 4
SERVE_PORT = 30000


def docker_lines(
    pool: Pool, platform: Platform, argv: Sequence[str], env: Sequence[tuple[str, str]]
) -> tuple[Line, ...]:
    """The lines of `docker run` for one node, in the page's order.

    A PD role always gets the host's network, since its bootstrap and transfer ports must be reached too.
    """
    docker = catalog().docker
    port = number(parse(argv), "--port", SERVE_PORT)
    network = "--network host" if pool.nodes > 1 or pool.role != "unified" else f"-p {port}:{port}"
    fabric = docker.amd_fabric if platform.family == "amd" and pool.nodes > 1 else ()
    cache = () if platform.kind == "npu" else (docker.cache,)
    variables = (docker.token, *(f"{name}={given}" for name, given in env))
    return (
        trusted("docker run", 0),
        *(trusted(line) for line in (*_access(platform), network, *fabric, *cache)),
        *(quoted(("--env", variable)) for variable in variables),
        trusted("--ipc=host"),
        quoted((pool.image,)),
        trusted("sglang serve"),
        *(quoted((flag.name, *flag.values), 4) for flag in parse(argv)),
    )


def _access(platform: Platform) -> tuple[str, ...]:
    docker = catalog().docker
    match platform.kind:
        case "cuda":
            return docker.nvidia
        case "hip":
            return docker.amd
        case _:
            lines = [_davinci(platform.gpus_per_node) if line == "<davinci>" else (line,) for line in docker.npu]
            return tuple(line for group in lines for line in group)


def _davinci(count: int) -> tuple[str, ...]:
    devices = [f"--device=/dev/davinci{i}" for i in range(count)]
    return tuple(" ".join(devices[i : i + DEVICES_PER_LINE]) for i in range(0, count, DEVICES_PER_LINE))
