"""What edits a recipe: overlays, large-scale presets and Playground knobs. Data in `data/recipes/`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from perilune.facts.load import load
from perilune.facts.recipes import Confidence, Disputed, Role


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition on a choice; every given field must hold. Names are platform, family and option ids."""

    hardware: tuple[str, ...] | None = None
    not_hardware: tuple[str, ...] | None = None
    family: tuple[str, ...] | None = None
    not_family: tuple[str, ...] | None = None
    roles: tuple[Role, ...] | None = None
    spec: tuple[str, ...] | None = None
    not_spec: tuple[str, ...] | None = None
    hicache: tuple[str, ...] | None = None
    pipelined: bool | None = None  # several pipeline stages that DSPARK does not fold
    collapsible: bool | None = None  # several pipeline stages that DSPARK folds
    dcp: bool | None = None  # the cell carries --dcp-size
    attention_dp: bool | None = None  # attention runs in more than one group


class Refusal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a choice is forbidden, and the nearest allowed one."""

    when: When
    reason: str
    instead: str


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Flags to add or to strip where `when` holds."""

    flags: str
    when: When = When()
    why: str = ""


class EnvEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Environment to add where `when` holds."""

    env: str
    when: When = When()


class Hint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence to show above the command where `when` holds."""

    text: str
    when: When = When()


class OverlayOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value of an overlay."""

    id: str
    default: bool = False
    default_on: When | None = None  # where it is the default instead
    refused: tuple[Refusal, ...] = ()
    collapse: bool = False  # folds pipeline stages on cells that allow it
    strip: str = ""
    strips: tuple[Edit, ...] = ()
    add: tuple[Edit, ...] = ()
    env: tuple[EnvEdit, ...] = ()
    hints: tuple[Hint, ...] = ()


class Overlay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One overlay dimension. `roles` are the roles that show it."""

    id: str
    flag: str
    title: str
    options: tuple[OverlayOption, ...]
    roles: tuple[Role, ...] = ("unified", "prefill", "decode")

    def option(self, name: str) -> OverlayOption | None:
        """The option called `name`."""
        return next((option for option in self.options if option.id == name), None)


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One large-scale preset."""

    id: str
    title: str
    trades: str
    pick_for: str
    dcp_size: int | None = None
    refused: tuple[Refusal, ...] = ()


class Presets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The large-scale presets and what they share."""

    sources: tuple[str, ...]
    confidence: Confidence
    gpus: tuple[int, ...]
    default_gpus: dict[str, int]
    attention_tp: int
    refused: tuple[Refusal, ...]
    strip: str
    env: str
    tail: str
    presets: tuple[Preset, ...]
    unverified: str
    with_speculation: str
    prefix_cache: str
    beyond: str

    def preset(self, name: str) -> Preset | None:
        """The preset called `name`."""
        return next((preset for preset in self.presets if preset.id == name), None)


class KnobOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value of a knob."""

    id: str
    add: str = ""
    env: str = ""
    replaces_env: str = ""
    refused: tuple[Refusal, ...] = ()
    note: str = ""


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Playground knob: the flags and environment it replaces, and its options."""

    id: str
    title: str
    options: tuple[KnobOption, ...]
    replaces: str = ""
    replaces_env: str = ""
    after: str = ""  # insert after the first of these flags
    needs: str = ""  # flag and value that must be on the command
    roles: tuple[Role, ...] = ("unified", "prefill", "decode")
    refused: tuple[Refusal, ...] = ()
    disputed: tuple[Disputed, ...] = ()

    def option(self, name: str) -> KnobOption | None:
        """The option called `name`."""
        return next((option for option in self.options if option.id == name), None)


class _Overlays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sources: tuple[str, ...]
    confidence: Confidence
    overlays: tuple[Overlay, ...]


class _Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sources: tuple[str, ...]
    confidence: Confidence
    knobs: tuple[Knob, ...]


@cache
def overlays() -> tuple[Overlay, ...]:
    """Every overlay in the order of application."""
    return load("recipes/overlays.yaml", _Overlays).overlays


@cache
def presets() -> Presets:
    """The large-scale presets."""
    return load("recipes/presets.yaml", Presets)


@cache
def knobs() -> Mapping[str, Knob]:
    """Every Playground knob by id, in the order of application."""
    return {knob.id: knob for knob in load("recipes/knobs.yaml", _Knobs).knobs}
