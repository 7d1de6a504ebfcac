"""What can be said of a server when some of its flags stand in a file that nobody read."""

from __future__ import annotations

from collections.abc import Iterable

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
