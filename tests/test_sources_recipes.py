"""Every published cell, kept in every kind of file, is read back as it was written."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from perilune.facts.recipes import Recipe, all_recipes
from perilune.plan.server import Server
from perilune.plan.sources.found import Found
from perilune.plan.sources.read import read_source
from perilune.plan.sources.rewrite import rewritten
from perilune.plan.sources.text import Text


def script(server: Server) -> str:
    return "#!/bin/bash\n" + server.format(one_per_line=True) + "\n"


def arrays(server: Server) -> str:
    exports = "".join(f"export {Server(env=(pair,)).format().split(' sglang')[0]}\n" for pair in server.env)
    return exports + "ARGS=(\n" + Server(server.argv, program=()).format() + '\n)\nexec sglang serve "${ARGS[@]}"\n'


def pod(server: Server) -> str:
    env = [{"name": name, "value": value} for name, value in server.env]
    container = {"name": "main", "env": env, "command": [*server.program], "args": [*server.argv]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}, width=1000)


def shell_in_pod(server: Server) -> str:
    container = {"command": ["bash", "-c"], "args": [server.format(one_per_line=True)]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}, default_style="|")


def folded_in_pod(server: Server) -> str:
    container = {"command": ["bash", "-c"], "args": [server.format()]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}, width=60)


def compose(server: Server) -> str:
    service = {"command": [*server.program, *server.argv], "environment": [f"{k}={v}" for k, v in server.env]}
    return yaml.safe_dump({"services": {"k3": service}}, width=60)


def dockerfile(server: Server) -> str:
    env = "".join(f"ENV {name}={json.dumps(value)}\n" for name, value in server.env)
    return f"FROM lmsysorg/sglang:v0.5.23\n{env}CMD {json.dumps([*server.program, *server.argv])}\n"


FORMS: dict[str, tuple[Callable[[Server], str], str]] = {
    "script": (script, "run.sh"),
    "arrays": (arrays, "run.sh"),
    "pod": (pod, "pod.yaml"),
    "shell in a pod": (shell_in_pod, "pod.yaml"),
    "folded in a pod": (folded_in_pod, "pod.yaml"),
    "compose": (compose, "compose.yaml"),
    "dockerfile": (dockerfile, "Dockerfile"),
}


def server_of(recipe: Recipe) -> Server:
    return Server(recipe.argv, tuple(recipe.env))


def read(text: Text) -> Found:
    (found,) = read_source(text).servers
    return found


@pytest.mark.parametrize("form", FORMS)
def test_every_cell_is_read_as_written_and_changes_in_place(form: str) -> None:
    write, name = FORMS[form]
    for recipe in all_recipes():
        server = server_of(recipe)
        text = Text(name, write(server))
        found = read(text)
        assert found.server.argv == server.argv, recipe.id
        assert dict(found.server.environment) == dict(server.env), recipe.id
        wanted = found.server.unset("--trust-remote-code").set("--port", 1234)
        better, left = rewritten(text, [found], [wanted], read_source)
        assert not left, (recipe.id, text.text)
        assert read(better).server.argv == wanted.argv
