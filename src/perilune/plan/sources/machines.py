"""What text says of the machines: their platform, their number, and what a container is given of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

from perilune.plan.commandline.form import container_tool

_GPU = re.compile(r"(?<![a-z0-9])(gb300|gb200|b300|b200|h200|h100|mi355x|mi350x)(?![0-9])", re.IGNORECASE)
_ASCEND = re.compile(r"(?<![a-z0-9])cann[\w.]*-(a3|950)(?![0-9])|(?<![a-z0-9])ascend-?(a3|950)(?![0-9])", re.IGNORECASE)


def platform_in(*texts: str) -> str | None:
    """The one platform that labels, GPU types or images name; None when they name none, or several."""
    found: set[str] = set()
    for text in texts:
        found.update(match[1].lower() for match in _GPU.finditer(text))
        found.update((match[1] or match[2]).lower() for match in _ASCEND.finditer(text))
    return found.pop() if len(found) == 1 else None


_NUMBER = re.compile(r"[1-9]\d{0,3}")


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """A container as it is started: whether it has the ports of its machine, runs by itself, and its GPUs."""

    shares_network: bool
    detached: bool
    gpus: int | None


def runs_container(wrapper: Sequence[str]) -> ContainerRun | None:
    """What `docker run` says of its container; None for other commands."""
    if container_tool(wrapper) is None:
        return None
    values = dict(pairwise(wrapper)) | dict(word.split("=", 1) for word in wrapper if re.match(r"--\w+=", word))
    shares = "host" in (values.get("--network"), values.get("--net"))
    detached = any(word == "--detach" or re.fullmatch(r"-[a-z]*d[a-z]*", word) for word in wrapper)
    return ContainerRun(shares, detached, _gpus(values.get("--gpus", "")))


def _gpus(text: str) -> int | None:
    """How many GPUs `--gpus` names."""
    text = text.strip("\"'")
    if text.startswith("device="):
        return len(text.removeprefix("device=").split(","))
    return int(text) if _NUMBER.fullmatch(text) else None


def nodes_of_step(wrapper: Sequence[str]) -> int | None:
    """On how many nodes `srun` starts its command, where it says so."""
    names = [PurePosixPath(word).name for word in wrapper]
    return nodes_asked(wrapper[names.index("srun") + 1 :]) if "srun" in names else None


def nodes_asked(options: Sequence[str]) -> int | None:
    """The number of nodes that options of Slurm ask for; None for one, as a step is that starts each by itself."""
    for index, word in enumerate(options):
        match = re.fullmatch(r"(?:-N|--nodes)=?(\d*)", word)
        if match:
            text = match[1] or (options[index + 1] if index + 1 < len(options) else "")
            return int(text) if _NUMBER.fullmatch(text) and text != "1" else None
    return None
