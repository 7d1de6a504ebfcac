"""Which SGLang release each option and environment variable came with, or went after."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import msgspec

from perilune.facts.load import load

JUDGED = "0.5.23"  # the release whose parser, resolution and sizing are modelled
_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:\.?(?:post|rc|dev)\d{1,4})?")


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Releases compared, oldest first. `_since` names the first with a name, `_until` the last.

    `options_before` says how an option is written for releases without it: the first flag takes its value.
    """

    versions: tuple[str, ...]
    source: str
    confidence: str
    options_since: Mapping[str, str]
    options_before: Mapping[str, tuple[str, ...]]
    options_until: Mapping[str, str]
    environment_since: Mapping[str, str]
    environment_until: Mapping[str, str]


@cache
def history() -> History:
    """What was found by comparing the releases."""
    return load("rules/history.yaml", History)


def release(version: str) -> tuple[int, int, int] | None:
    """A release as numbers that compare (`0.5.9` before `0.5.10`); None for any other text."""
    match = _RELEASE.fullmatch(version.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
