"""Variables and values as text: unexpanded, unfilled, misspelled, renamed, or of another platform."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from itertools import zip_longest

from perilune.facts.flags import environment, renames
from perilune.facts.rule_names import rule_names
from perilune.plan.commandline import secrets
from perilune.plan.commandline.secrets import is_secret_name
from perilune.plan.rules.edits import Edit
from perilune.plan.rules.releases import moved, still_reads
from perilune.plan.rules.rule import ENGINE, Says, rule
from perilune.plan.rules.subject import Subject

_SHELL_NAME = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*|\$\(\s*[a-z]|`")  # not $(NAME), which Kubernetes expands
KINDS = {"cuda": "NVIDIA", "hip": "AMD", "npu": "Ascend"}
CLOSE, CLOSE_PART = 0.86, 0.7  # likeness of names, and of the one part in which they differ


def _texts(s: Subject) -> Iterator[tuple[str, str]]:
    """Everything written, as (flag or variable, its text)."""
    for name, value in s.server.env if not s.server.container else s.env.items():
        yield name, value
    for flag in s.server.flags:
        for value in flag.values:
            yield flag.name, value


@rule("env-unexpanded", "error", "SemiAnalysisAI/InferenceX pull request 2354")
def unexpanded(s: Subject) -> Iterator[Says]:
    """A `$NAME` that no shell expands reaches the server as it stands."""
    if s.expands:
        return
    for name, value in _texts(s):
        if _SHELL_NAME.search(value):
            yield Says(
                f"{name} holds {_seen(name, value)}, which no shell expands here: the server gets it as it stands.",
                "Write the value, or start the server through a shell.",
                (name,),
            )


def _seen(name: str, value: str) -> str:
    return "a `$NAME`" if is_secret_name(name.lstrip("-").replace("-", "_")) else repr(value[:60])


@cache
def _placeholders() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(one.pattern), one.what) for one in rule_names().placeholders)


@rule("env-placeholder", "error", "sgl-project/sglang issue 22840")
def placeholder(s: Subject) -> Iterator[Says]:
    """A placeholder was left where a value belongs."""
    if s.template:
        return
    for name, value in _texts(s):
        if value == secrets.placeholder(name.lstrip("-")):
            continue  # a secret that was hidden before anybody looked
        for pattern, what in _placeholders():
            found = pattern.search(value)
            if found is not None and not value.lstrip().startswith("{" + '"'):
                yield Says(f"{name} still holds {found[0][:60]}, {what}.", "Write your own value.", (name,))
                break


@rule("env-renamed", "advice", f"{ENGINE} sources, renames over time")
def renamed(s: Subject) -> Iterator[Says]:
    """A variable that this release no longer reads, though recipes and scripts still set it."""
    known = {rename.old: rename for rename in renames().environment}
    for name in s.env:
        rename = known.get(name)
        if rename is None or still_reads(s.engine, name):
            continue
        gone = rename.status == "gone"
        yield Says(
            f"{ENGINE} does not read {name}." if gone else f"{name} is deprecated.",
            flags=(name,),
            edits=moved(s.server, rename),
            source=rename.source,
        )


@rule("env-unknown", "advice", f"{ENGINE} sources")
def misspelled(s: Subject) -> Iterator[Says]:
    """A variable that nothing reads, close to one that is read."""
    names = rule_names()
    for name in s.env:
        closed = name.startswith(names.closed_families)
        if name in environment() or not (closed or name.startswith(names.open_families)) or _is_renamed(name):
            continue
        family = name.partition("_")[0] + "_"
        near = get_close_matches(name, [known for known in environment() if known.startswith(family)], 1, CLOSE)
        if not near and (not closed or family != "SGLANG_"):
            continue
        movable = near and near[0] not in s.env and not is_secret_name(name) and _is_slip(name, near[0])
        edits: tuple[Edit, ...] = () if near else (Edit("unset-env", name),)
        if movable:
            edits = (Edit("unset-env", name), Edit("env", near[0], s.env[name]))
        yield Says(
            f"{ENGINE} does not read {name}" + (f"; the closest name it reads is {near[0]}." if near else "."),
            "" if edits else f"Use {near[0]} if that was meant.",
            (name,),
            edits,
        )


def _is_slip(written: str, name: str) -> bool:
    """Whether two names differ as by a slip of the pen: within one of their parts, and little."""
    parts = [(a, b) for a, b in zip_longest(written.split("_"), name.split("_"), fillvalue="") if a != b]
    return len(parts) == 1 and SequenceMatcher(None, *parts[0]).ratio() >= CLOSE_PART


@cache
def _renamed_names() -> frozenset[str]:
    return frozenset(rename.old for rename in renames().environment)


def _is_renamed(name: str) -> bool:
    return name in _renamed_names()


@rule("env-inert", "advice", "names by platform")
def inert(s: Subject) -> Iterator[Says]:
    """A variable of another kind of accelerator."""
    for name in s.env:
        one = next((v for v in rule_names().platform_variables if name.startswith(v.prefix)), None)
        if one is not None and one.kind != s.platform.kind:
            yield Says(
                f"{name} does something on {KINDS[one.kind]} only; this is {s.platform.label}.",
                flags=(name,),
                edits=(Edit("unset-env", name),),
                source=one.source,
            )


RULES = (unexpanded, placeholder, renamed, misspelled, inert)
