"""Names that the rules look for: variables of one platform, placeholders, images."""

from __future__ import annotations

from functools import cache

import msgspec

from perilune.facts.load import load


class PlatformVariable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Variables that do something on one kind of accelerator only, by prefix."""

    prefix: str
    kind: str
    source: str


class Placeholder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text that stands where a value was to be written."""

    pattern: str
    what: str


class ImageKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kind of accelerator that images of a name are built for."""

    match: str
    kind: str


class BadImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image that is known to fail."""

    match: str
    why: str
    use: str
    source: str


class RuleNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything in `rules/names.yaml`."""

    platform_variables: tuple[PlatformVariable, ...]
    closed_families: tuple[str, ...]
    open_families: tuple[str, ...]
    placeholders: tuple[Placeholder, ...]
    images: tuple[ImageKind, ...]
    bad_images: tuple[BadImage, ...]


@cache
def rule_names() -> RuleNames:
    """The names, read once."""
    return load("rules/names.yaml", RuleNames)
