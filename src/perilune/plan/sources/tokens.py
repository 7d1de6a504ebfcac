"""Secrets in text that is to be shown, known by their form or by the name in front of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from perilune.errors import UnusableInput
from perilune.plan.commandline.secrets import is_secret_name, placeholder
from perilune.plan.display import printable
from perilune.plan.rules import Edit, Finding

HIDDEN = "<secret>"
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)-[\w-]{12,}"  # OpenAI and those that follow it
    r"|hf_[A-Za-z0-9]{12,}|nvapi-[\w-]{12,}|gh[opsur]_[A-Za-z0-9]{12,}|github_pat_\w{12,}|glpat-[\w-]{12,}"
    r"|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w.-]{8,}"
    r")"
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)([^/\s:@'\"]*):(?!\d{1,5}(?![\w-]))[^/\s@'\"]+")
_NAMED = re.compile(r"((?:--|(?<![\w-]))[A-Za-z][\w-]*)=([^\s'\"<$][^\s'\"]*)")
_FOLLOWED = re.compile(r"(--[A-Za-z][\w-]*)\s+([^\s<$-]\S*)")


def masked(text: str) -> str:
    """The text with what is a secret by its looks, a login's password and the values of secret names hidden."""
    text = _LOGIN.sub(rf"\1:{HIDDEN}", _BEARER.sub(rf"\1 {HIDDEN}", _TOKEN.sub(HIDDEN, text)))
    text = _NAMED.sub(_value_hidden, text) if "=" in text else text
    return _FOLLOWED.sub(_value_hidden, text) if "unrecognized arguments" in text else text


def _value_hidden(match: re.Match[str]) -> str:
    name = match[1].lstrip("-").replace("-", "_")
    if not is_secret_name(name):
        return match.group()
    return match.group()[: match.start(2) - match.start()] + placeholder(name)


def without_secrets(findings: Sequence[Finding]) -> list[Finding]:
    """Findings as they may be shown; an edit that would show a secret is left to its owner."""
    return [
        replace(
            one,
            message=masked(one.message),
            fix=masked(one.fix),
            flags=tuple(map(masked, one.flags)),
            edits=tuple(edit for edit in one.edits if _harmless(edit)),
        )
        for one in findings
    ]


def _harmless(edit: Edit) -> bool:
    return masked(edit.name) == edit.name and (edit.value is None or masked(edit.value) == edit.value)


def shown(problem: UnusableInput) -> UnusableInput:
    """A problem as it may be shown on a terminal: in one line, without secrets and control characters."""
    where = printable(problem.where) if problem.where else None
    fix = printable(masked(problem.fix)) if problem.fix else None
    return UnusableInput(printable(masked(problem.message)), where=where, fix=fix)
