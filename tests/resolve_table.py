"""Tables of command lines and what the engine makes of them. Every expectation was obtained from SGLang 0.5.23."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perilune.facts.hardware import platform
from perilune.plan.model.config import ModelConfig
from perilune.plan.resolve import resolve
from perilune.plan.resolve.state import Resolved
from perilune.plan.server import Server

K3 = "--model-path moonshotai/Kimi-K3 --trust-remote-code --tp-size 8"
DSPARK = "--speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark"


@dataclass(frozen=True)
class Case:
    """Flags written after Kimi-K3 on eight GPUs, with variables in front; what they resolve to, or the error.

    A flag that is repeated wins. `DSPARK` stands for the published draft. A field such as `decode.max_bs`
    is that setting of the CUDA graphs.
    """

    platform: str
    flags: str
    expect: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def __str__(self) -> str:
        return f"{self.platform} {self.flags}".strip()


def table(columns: str, *rows: tuple[Any, ...]) -> list[Case]:
    """Cases from rows of (platform, flags, one value a column)."""
    names = columns.split()
    return [Case(where, flags, dict(zip(names, values, strict=True))) for where, flags, *values in rows]


def refusals(*rows: tuple[str, str, str]) -> list[Case]:
    """Cases from rows of (platform, flags, error)."""
    return [Case(where, flags, error=error) for where, flags, error in rows]


def named(cases: list[Case]) -> dict[str, Any]:
    """Arguments of `pytest.mark.parametrize` after the name, with readable ids."""
    return {"argvalues": cases, "ids": [str(case) for case in cases]}


def outcome(case: Case, model: ModelConfig | None = None) -> Resolved:
    """What we make of a case; `model` in place of Kimi-K3."""
    words = shlex.split(case.flags)
    variables = tuple(itertools.takewhile(lambda word: not word.startswith("-") and "=" in word, words))
    argv = shlex.split(K3)
    for before, word in itertools.pairwise(["", *words[len(variables) :]]):
        alone = word == "DSPARK" and before != "--speculative-algorithm"
        argv += shlex.split(DSPARK) if alone else [word]
    pairs = ((name, value) for name, _, value in (word.partition("=") for word in variables))
    return resolve(Server(tuple(argv), tuple(pairs), program=()), platform(case.platform), model=model)


def check(case: Case, model: ModelConfig | None = None) -> None:
    """Assert that we agree with the engine on a case."""
    found = outcome(case, model)
    assert found.error == case.error
    assert found.accepted == (case.error is None)
    assert {name: _value(found, name) for name in case.expect} == case.expect


def _value(found: Resolved, name: str) -> Any:
    phase, dot, setting = name.partition(".")
    value = getattr(getattr(found["cuda_graph_config"], phase), setting) if dot else found[name]
    return list(value) if isinstance(value, tuple) else value
