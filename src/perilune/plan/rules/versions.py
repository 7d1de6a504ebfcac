"""SGLang releases: what the one asked about does not have yet, does not have any more, or gets wrong."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.facts.flags import renames
from perilune.facts.history import JUDGED, history, release
from perilune.plan.rules.edits import Edit
from perilune.plan.rules.releases import lacks_flag, lacks_variable, renaming, spelled_before
from perilune.plan.rules.rule import COMPARED, ENGINE, Says, rule
from perilune.plan.rules.subject import Subject

PARSERS = ("--tool-call-parser", "--reasoning-parser")


@rule("version-unknown", "advice", "releases compared")
def unknown_version(s: Subject) -> Iterator[Says]:
    """The release asked about is not the modelled one: known differences are told, the rest is judged by that one."""
    if s.engine == JUDGED:
        return
    known = history().versions
    if release(s.engine) is None or s.engine not in known:
        yield Says(
            f"SGLang {s.engine} is not among the releases compared ({known[0]} to {known[-1]}): "
            f"everything here is judged by {JUDGED}.",
            f"Run {ENGINE}, or hold what the server prints at boot against this.",
            ("--sglang",),
        )
    else:
        yield Says(
            f"Flags, variables and known refusals are those of {s.engine}, defaults and memory those of {JUDGED}.",
            f"Run {ENGINE}, or hold what the server prints at boot against this.",
            ("--sglang",),
        )


@rule("version-k3-parser", "advice", "sgl-project/sglang issue 34604", until="0.5.18")
def k3_parser(s: Subject) -> Iterator[Says]:
    """The Kimi-K3 tool-call parser of 0.5.17 fails on values that are not JSON."""
    if s.value("--tool-call-parser") == "kimi_k3":
        yield Says(
            f"The kimi_k3 parser of SGLang {s.engine} fails on values that are not JSON: clients get raw text.",
            "Use a later release.",
            PARSERS,
        )


@rule("version-flag", "error", f"wheels of {COMPARED} compared")
def newer_flag(s: Subject) -> Iterator[Says]:
    """A flag that came with a later release than the one asked about."""
    if s.engine == JUDGED:
        return
    for flag in s.server.flags:
        first = lacks_flag(s.engine, flag.name) or lacks_flag(s.engine, flag.spelled)
        if first is not None:
            yield Says(
                f"SGLang {s.engine} does not know {flag.spelled}, which came with {first}.",
                flags=(flag.name,),
                edits=spelled_before(s.engine, flag),
            )


@rule("version-variable", "advice", f"wheels of {COMPARED} compared")
def newer_variable(s: Subject) -> Iterator[Says]:
    """A variable that came with a later release than the one asked about."""
    if s.engine == JUDGED:
        return
    for name in s.env:
        first = lacks_variable(s.engine, name)
        if first is not None:
            yield Says(
                f"SGLang {s.engine} does not read {name}, which came with {first}.",
                flags=(name,),
                edits=(Edit("unset-env", name),),
            )


@rule("flag-renamed", "advice", "renames over time")
def deprecated(s: Subject) -> Iterator[Says]:
    """A flag or value in an old spelling that still works."""
    if not s.parsed:
        return
    for flag in s.server.flags:
        rename = next((r for r in renames().flags if r.old == flag.spelled and r.status == "deprecated"), None)
        if rename is not None and flag.option is not None:
            yield Says(
                f"{flag.spelled} is deprecated; it is {rename.to} now.",
                flags=(flag.name,),
                edits=renaming(rename, flag.spelled) if " " in rename.to or not flag.values else (),
                source=rename.source,
            )


RULES = (unknown_version, newer_flag, newer_variable, deprecated, k3_parser)
