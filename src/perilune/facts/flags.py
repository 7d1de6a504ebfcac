"""SGLang's options, record fields, environment names, and spellings that changed over time.

`flags.json` and `environment.json` are written by `scripts/flag_catalog.py` from an installed SGLang;
`renames.yaml` and `environment.yaml` (names that recipes set and libraries read) are kept by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from heapq import nlargest
from typing import Any, Literal

import msgspec

from perilune.facts.load import load

Kind = Literal[
    "store",
    "store_true",
    "boolean_optional",  # --x and --no-x
    "lora_paths",
    "deprecated_true",
    "deprecated_const",
    "help",
]


class Option(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One option of the engine's argument parser, as argparse sees it."""

    options: tuple[str, ...]  # every spelling, the canonical one first
    dest: str  # the record field it writes
    kind: Kind
    type: str | None = None  # a key of `plan.resolve.parser.TYPES`
    nargs: Literal["+", "*", "?"] | None = None
    choices: tuple[str | int, ...] | None = None
    default: Any = None
    const: Any = None
    required: bool = False
    takes_value: bool = False
    replaced_by: str | None = None

    @property
    def name(self) -> str:
        """The canonical spelling, such as `--tp-size` (never the alias `--tensor-parallel-size`)."""
        derived = "--" + self.dest.replace("_", "-")
        return derived if derived in self.options else self.options[0]


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field of the engine's argument record, on the command line or not."""

    name: str
    namespace: str | None = None
    default: Any = None
    cli: bool = False
    resolvable: bool = False  # resolution may decide it
    fallback: Any = None  # what readers see when nothing decided it


class FlagCatalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options and record fields of one engine version."""

    engine: str
    version: str
    options: tuple[Option, ...]
    fields: tuple[Field, ...]


class Rename(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"old": "from"}):
    """A spelling that changed. `to` is empty when nothing replaces it."""

    old: str
    to: str
    status: Literal["gone", "deprecated"]
    source: str
    confidence: str
    match: str | None = None  # the flag to look for when `old` is a phrase
    flag: str | None = None  # for a renamed value: the flag that takes it
    note: str | None = None


class Renames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Renamed flags, environment names and values."""

    flags: tuple[Rename, ...]
    environment: tuple[Rename, ...]
    values: tuple[Rename, ...]


class EnvName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment variable that the engine or a library under it reads."""

    name: str
    type: str = "str"  # str bool int float tuple json
    default: str | bool | int | float | None = None
    computed: bool = False  # the default is computed when read
    secret: bool = False
    registered: bool = True  # declared in the engine's registry, not only read somewhere
    deprecated_name: str | None = None  # an older spelling still read
    read_by: str | None = None  # for companions: the library that reads it
    note: str | None = None


class _EngineEnvironment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    names: tuple[EnvName, ...]


class _Companions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    companions: tuple[EnvName, ...]


@cache
def catalog() -> FlagCatalog:
    """Every option and record field of the engine."""
    return load("flags.json", FlagCatalog)


@cache
def options() -> Mapping[str, Option]:
    """Every accepted spelling and its option."""
    return {spelling: option for option in catalog().options for spelling in option.options}


@cache
def option_of(dest: str) -> Option | None:
    """The option that writes the record field `dest`; None when it has none."""
    return next((option for option in catalog().options if option.dest == dest), None)


@cache
def defaults() -> Mapping[str, Any]:
    """Every record field and its declared default. Treat the values as read-only."""
    return {field.name: field.default for field in catalog().fields}


@cache
def fallbacks() -> Mapping[str, Any]:
    """Fields that read as a fallback while nothing decided them."""
    return {field.name: field.fallback for field in catalog().fields if field.fallback is not None}


@cache
def renames() -> Renames:
    """Spellings that changed over time."""
    return load("renames.yaml", Renames)


@cache
def renamed_flag(flag: str) -> Rename | None:
    """The rename entry of a flag spelling, if it has one."""
    return next((r for r in renames().flags if flag == (r.match or r.old)), None)


@cache
def environment() -> Mapping[str, EnvName]:
    """Every known environment name, older spellings included."""
    engine = load("environment.json", _EngineEnvironment).names
    companions = load("environment.yaml", _Companions).companions
    older = {entry.deprecated_name: entry for entry in engine if entry.deprecated_name is not None}
    return {**older, **{entry.name: entry for entry in (*companions, *engine)}}


def closest_flag(flag: str) -> str | None:
    """The known spelling nearest to an unknown flag, underscores read as dashes; None if none is near."""
    name = flag.split("=", 1)[0][:80]
    spelled = "--" + name.lstrip("-").replace("_", "-").lower()
    if spelled in options():
        return spelled
    pieces = _pieces(spelled)
    near = nlargest(12, options(), key=lambda known: len(pieces & _pieces(known)) / (len(_pieces(known)) + 1))
    if found := get_close_matches(spelled, near, n=1, cutoff=0.8):
        return found[0]
    words = set(spelled[2:].split("-"))
    overlap, best = max((len(words & set(known[2:].split("-"))), known) for known in near)
    return best if overlap >= max(2, len(words) - 1) else None


@lru_cache(maxsize=4096)
def _pieces(text: str) -> frozenset[str]:
    """Runs of three characters, which similar spellings share."""
    return frozenset(text[i : i + 3] for i in range(len(text) - 2))
