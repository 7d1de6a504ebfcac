"""A rule: one small function over a subject, with what the documentation and the findings say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, ParamSpec

from perilune.facts.history import JUDGED
from perilune.plan.rules.edits import Edit, begun
from perilune.plan.rules.finding import Finding, Severity
from perilune.plan.rules.releases import before

P = ParamSpec("P")
ENGINE = f"SGLang {JUDGED}"
COMPARED = f"SGLang 0.5.17 to {JUDGED}"  # releases read side by side
PAGE = "Kimi-K3 page of the SGLang cookbook"


@dataclass(frozen=True, slots=True)
class Says:
    """What a rule found. `id` and `severity` stand in for the rule's own where a rule tells cases apart.

    `member` is the place of the server it is about among those looked at, where a rule looks at several.
    """

    message: str
    fix: str = ""
    flags: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    id: str = ""
    severity: Severity | None = None
    pool: str = ""
    source: str = ""
    member: int | None = None


@dataclass(frozen=True, slots=True)
class Rule(Generic[P]):
    """A rule and its particulars. It holds for SGLang from `since` on and before `until`, where they are given."""

    id: str
    severity: Severity
    source: str
    check: Callable[P, Iterator[Says]]
    since: str = ""
    until: str = ""

    @property
    def says(self) -> str:
        """What the rule is about, in a sentence or two."""
        return " ".join((self.check.__doc__ or "").split())

    def holds_for(self, engine: str) -> bool:
        """Whether the rule concerns a release of the engine; of an unknown one it does."""
        too_old = bool(self.since) and before(engine, self.since)
        too_new = bool(self.until) and not before(engine, self.until)
        return not (too_old or too_new)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Finding]:
        """The findings of the rule."""
        for said in self.check(*args, **kwargs):
            yield Finding(
                said.id or self.id,
                said.severity or self.severity,
                said.message,
                said.fix or (f"{begun(said.edits)}." if said.edits else ""),
                said.flags,
                said.source or self.source,
                said.pool,
                said.edits,
                member=said.member,
            )


def rule(
    name: str, severity: Severity, source: str = ENGINE, *, since: str = "", until: str = ""
) -> Callable[[Callable[P, Iterator[Says]]], Rule[P]]:
    """Make a rule of a function, whose docstring says what it is about."""
    return lambda check: Rule(name, severity, source, check, since, until)
