"""What can be said of a server when some of its flags or variables stand in a file that nobody read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perilune.plan.rules import Finding, Subject, environment, images, values, versions

_OF_WHAT_IS_WRITTEN = frozenset(
    rule.id for module in (environment, images, versions) for rule in module.RULES
) | {values.absurd.id}  # fmt: skip


def standing_alone(findings: Iterable[Finding], subject: Subject) -> tuple[Finding, ...]:
    """The findings that hold whatever the other flags are."""
    unknown = {flag.spelled for flag in subject.server.flags if flag.option is None}
    parse = subject.ledger.error_stage == "parse"
    return tuple(
        finding
        for finding in findings
        if finding.id in _OF_WHAT_IS_WRITTEN
        or (parse and finding.severity == "error" and finding.flags and unknown.issuperset(finding.flags))
    )


def whatever_is_set(findings: Iterable[Finding], published: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without errors and losses that the variables of a published recipe would avert."""
    stays = {finding.id for finding in published}
    return tuple(one for one in findings if one.id in stays or one.severity not in ("error", "capacity"))


def published_variables(platform_id: str) -> Mapping[str, str]:
    """The variables that the recipes of a platform set, but for those that are to be filled in."""
    from perilune.facts.recipes import all_recipes  # only here: most servers have no such file

    found: dict[str, str] = {}
    for recipe in all_recipes():
        if recipe.hardware == platform_id:
            found |= {name: value for name, value in recipe.env if "<" not in value and name not in found}
    return found
