"""What a user chooses: a cell, its overlays, a preset, and edits on top."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal

from perilune.errors import UnusableInput
from perilune.facts.flags import Option, closest_flag
from perilune.plan.commandline.occurrences import find_option
from perilune.plan.compose.flags import Flag

MODES = ("unified", "pd", "prefill", "decode")
STRATEGIES = ("low-latency", "balanced", "high-throughput")
PREFILL_STRATEGIES = ("default", "long-context")
ROLES = ("unified", "prefill", "decode")
MAX_COUNT = 2**31 - 1
MAX_TEXT = 20_000

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_ENV_LIKE = re.compile(r"[A-Z][A-Z0-9_]*_[A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Override:
    """One edit on top of a recipe. `role` limits it to one pool; None means every pool."""

    kind: Literal["set", "unset", "env", "unset-env"]
    name: str  # canonical flag, or environment name
    values: tuple[str, ...] = ()
    role: str | None = None

    @property
    def flag(self) -> Flag:
        """The flag of a `set`."""
        return Flag(self.name, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of recipe. None means the catalog's default for the platform.

    `mode` `pd` composes both roles and the router; `prefill` and `decode` compose one role alone.
    `strategy` is that of the unified or decode role, `prefill_strategy` that of prefill. `isl` and `osl` are
    tokens, `concurrency` is requests at once.
    """

    hardware: str
    mode: str = "unified"
    strategy: str | None = None
    prefill_strategy: str | None = None
    quant: str | None = None
    spec: str | None = None
    vlm_transport: str | None = None
    hicache: str | None = None
    preset: str | None = None
    gpus: int | None = None
    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None
    knobs: tuple[tuple[str, str], ...] = ()
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        _one_of("--mode", self.mode, MODES)
        if self.strategy in PREFILL_STRATEGIES:
            raise UnusableInput(
                f"{self.strategy!r} is a strategy of prefill.",
                where="--strategy",
                fix=f"Use --mode pd --prefill-strategy {self.strategy}.",
            )
        if self.strategy is not None:
            _one_of("--strategy", self.strategy, STRATEGIES)
            if self.mode == "prefill":
                raise UnusableInput(
                    "A prefill pool alone has no such strategy.",
                    where="--strategy",
                    fix="Use --prefill-strategy default or long-context.",
                )
        if self.prefill_strategy is not None:
            _one_of("--prefill-strategy", self.prefill_strategy, PREFILL_STRATEGIES)
            if self.mode not in ("pd", "prefill"):
                raise UnusableInput(
                    f"Mode {self.mode} has no prefill pool.", where="--prefill-strategy", fix="Use --mode pd."
                )
        for name in ("isl", "osl", "concurrency", "gpus"):
            _count(f"--{name}", getattr(self, name))
        if (self.isl is None) != (self.osl is None):
            raise UnusableInput("An average request needs both lengths.", where="--isl", fix="Give --isl and --osl.")

    def strategy_of(self, role: str) -> str:
        """The strategy of a role, with the defaults filled in."""
        if role == "prefill":
            return self.prefill_strategy or "default"
        return self.strategy or "balanced"


def _one_of(where: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UnusableInput(f"Unknown value {given[:60]!r}.", where=where, fix=f"Known: {' '.join(known)}.")


def _count(where: str, given: int | None) -> None:
    if given is not None and not 0 < given <= MAX_COUNT:
        raise UnusableInput(f"{given} is not a whole number from 1 to {MAX_COUNT:,}.", where=where)


def parse_set(text: str) -> Override:
    """Read `[ROLE:]FLAG[=VALUE]` of `--set`; leading dashes are optional. Raises UnusableInput."""
    role, body = _scoped(text, "--set")
    spelled, eq, given = body.partition("=")
    option = _option(spelled, "--set")
    if not option.takes_value:
        if eq:
            raise UnusableInput(f"{option.name} takes no value.", where="--set", fix=f"Write --set {spelled}.")
        return Override("set", option.name, (), role)
    if not eq or not given:
        raise UnusableInput(f"{option.name} needs a value.", where="--set", fix=f"Write --set {spelled}=VALUE.")
    return Override("set", option.name, _values(option, given), role)


def parse_unset(text: str) -> Override:
    """Read `[ROLE:]FLAG` or `[ROLE:]ENV_NAME` of `--unset`. Raises UnusableInput."""
    role, body = _scoped(text, "--unset")
    if _ENV_LIKE.fullmatch(body):
        return Override("unset-env", body, (), role)
    return Override("unset", _option(body, "--unset").name, (), role)


def parse_env(text: str) -> Override:
    """Read `[ROLE:]NAME=VALUE` of `--env`. Raises UnusableInput."""
    role, body = _scoped(text, "--env")
    name, eq, given = body.partition("=")
    if not eq or not _ENV_NAME.fullmatch(name):
        raise UnusableInput(f"{body[:60]!r} is not NAME=VALUE.", where="--env", fix="Write --env NAME=VALUE.")
    return Override("env", name, (given,), role)


def parse_knob(text: str) -> tuple[str, str]:
    """Read `[ROLE:]NAME=VALUE` of a Playground knob. Raises UnusableInput."""
    name, eq, given = text.partition("=")
    if not eq or not name or not given:
        raise UnusableInput(f"{text[:60]!r} is not NAME=VALUE.", where="--knob", fix="Write --knob NAME=VALUE.")
    return name, given


def _scoped(text: str, where: str) -> tuple[str | None, str]:
    if len(text) > MAX_TEXT:
        raise UnusableInput(f"It is longer than {MAX_TEXT:,} characters.", where=where)
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UnusableInput("It contains a control character.", where=where)
    role, colon, body = text.partition(":")
    return (role, body) if colon and role in ROLES else (None, text)


def _option(spelled: str, where: str) -> Option:
    name = "--" + spelled.lstrip("-").replace("_", "-")
    option = find_option(name)
    if option is not None and option.kind == "help":
        raise UnusableInput(f"{name} only prints help.", where=where)
    if option is None:
        near = closest_flag(name)
        fix = f"Did you mean {near}?" if near else "See `sglang serve --help`."
        raise UnusableInput(f"SGLang has no option {name[:80]!r}.", where=where, fix=fix)
    return option


def _values(option: Option, text: str) -> tuple[str, ...]:
    if option.nargs not in ("+", "*"):
        return (text,)
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UnusableInput(f"{option.name}: the quotes in {text[:60]!r} do not close.", where="--set") from error
