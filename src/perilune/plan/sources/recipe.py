"""srt-slurm recipes: the flags and variables of each role, in both layouts of the format."""

from __future__ import annotations

import re

from perilune.plan.server import Server
from perilune.plan.sources.config import flags
from perilune.plan.sources.found import Found, Word
from perilune.plan.sources.launch import Surroundings
from perilune.plan.sources.nodes import Node, get, pairs, scalar, start_of, word_of
from perilune.plan.sources.text import Text

_ROLES = {"agg": "", "aggregated": "", "prefill": "prefill", "decode": "decode"}


def read(text: Text, root: Node, around: Surroundings) -> None:
    """Add the server of every role; what the tool itself adds to a command is added here too."""
    layout_two = get(root, "roles") is not None
    roles = get(root, "roles") if layout_two else get(root, "backend", "sglang_config")
    for key, value in pairs(roles):
        role = str(key.value)
        written = get(value, "args") if layout_two else value
        variables = get(value, "env") if layout_two else get(root, "backend", f"{role}_environment")
        if written is None or role not in _ROLES:
            continue
        words = (*flags(text, written, around.notes), *_added(root, value, role, layout_two))
        env = {str(k.value): w for k, v in pairs(variables) if (w := word_of(text, v, entry=True)) is not None}
        server = Server(tuple(w.text for w in words), tuple((name, w.text) for name, w in env.items()))
        image = get(root, "model", "container")
        line, place = text.line(start_of(key)), start_of(image) if image is not None else None
        around.found.append(
            Found(server, "srt-slurm recipe", line, role, words, env=env, image=scalar(image), image_at=place)
        )


def _added(root: Node, role: Node, name: str, layout_two: bool) -> list[Word]:
    given = []
    if (path := scalar(get(root, "model", "path"))) and get(role, "model-path") is None:
        known = "/" in path and not path.startswith(("/", "hf:"))
        given += ["--model-path", path.removeprefix("hf:") if known or path.startswith("hf:") else "$MODEL"]
    if mode := _ROLES[name]:
        given += ["--disaggregation-mode", mode]
    short = _ROLES[name] or "agg"
    nodes = _number(get(role, "nodes")) if layout_two else _number(get(root, "resources", f"{short}_nodes"))
    workers = _number(get(role, "workers")) if layout_two else _number(get(root, "resources", f"{short}_workers"))
    per = (nodes or 1) // (workers or 1)
    if per > 1:
        given += ["--nnodes", str(per), "--node-rank", "0", "--dist-init-addr", "$(HEAD):8300"]
    given += [] if get(role, "host") is not None else ["--host", "0.0.0.0"]  # noqa: S104 - what the tool writes
    return [Word(text, style="entry") for text in given]


def _number(node: Node | None) -> int | None:
    text = scalar(node) or ""
    return int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else None
