"""The recipe catalog: every published Kimi-K3 cell, and what recipes share. Data in `data/recipes/`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Literal

import msgspec

from perilune.errors import UnusableInput
from perilune.facts.load import load

Role = Literal["unified", "prefill", "decode"]
Confidence = Literal["high", "medium", "low"]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a fact was read. Rank 1 wins over rank 2 where sources disagree."""

    id: str
    title: str
    reference: str
    rank: int


class Disputed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point on which sources disagree: what the catalog follows, and what is said elsewhere."""

    topic: str
    here: str
    elsewhere: str


class Unpublished(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that no source shows: its placeholder, and a likely value that is never filled in by itself."""

    placeholder: str
    flag: str  # the flag or environment name that settles it
    what: str
    assume: str = ""
    because: str = ""


class Pairing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decode cell that needs its prefill changed: the flags to set there, and why."""

    prefill_strategy: str
    set: str
    reason: str


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published command, for one role and the strategies that share it. Flag order is the page's."""

    role: Role
    strategies: tuple[str, ...]
    nodes: int
    flags: str
    env: str = ""
    verification: Literal["verified", "in-progress"] = "in-progress"
    completeness: Literal["full", "partial"] = "full"
    confidence: Confidence | None = None
    sources: tuple[str, ...] = ()
    large_scale: bool = False  # the page shows only presets here; the flags are their base
    collapses: bool = False  # DSPARK folds its pipeline stages into the tensor-parallel width
    head: str | None = None  # placeholder of the head node where it is not the common one
    pairs_with: Pairing | None = None
    published: str = ""  # of a partial cell: the flags that were published, the rest is inferred
    unpublished: tuple[Unpublished, ...] = ()
    notes: tuple[str, ...] = ()
    disputed: tuple[Disputed, ...] = ()


class CellFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cells of one platform (or of several that share them). `env` precedes that of each cell."""

    hardware: tuple[str, ...]
    sources: tuple[str, ...]
    confidence: Confidence
    cells: tuple[Cell, ...]
    env: str = ""
    multi_node_hints: tuple[str, ...] = ()
    disputed: tuple[Disputed, ...] = ()


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the catalog on one platform, for one role and one strategy."""

    id: str  # hardware/role/strategy
    hardware: str
    role: Role
    strategy: str
    cell: Cell
    env: tuple[tuple[str, str], ...]
    multi_node_hints: tuple[str, ...]
    sources: tuple[str, ...]
    confidence: Confidence
    disputed: tuple[Disputed, ...]

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments after `sglang serve`, as published; `<model>` stands for the checkpoint."""
        return words(self.cell.flags)


class MultiNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How node flags are added: after the last of `anchors`, with the head's placeholder and port."""

    anchors: tuple[str, ...]
    fallback_anchor: str
    head: str
    rank: str
    port: int


class Router(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The PD router: its module, the ports of both roles, the bootstrap port and its own address."""

    module: str
    prefill_port: int
    decode_port: int
    bootstrap_port: int
    host: str
    port: int
    extra: str


class Placeholder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token that only the user can replace, and what it stands for."""

    token: str
    means: str


class Docker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of `docker run` by vendor, as trusted shell text; `<davinci>` stands for the NPU devices."""

    nvidia: tuple[str, ...]
    amd: tuple[str, ...]
    npu: tuple[str, ...]
    amd_fabric: tuple[str, ...]  # between nodes
    cache: str
    token: str


class Catalog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all recipes share."""

    sources: tuple[str, ...]
    confidence: Confidence
    cell_files: dict[str, str]  # hardware -> file below cells/
    models: dict[str, str]  # quantization -> checkpoint
    fallback_image: str
    average_request_tokens: int  # input and output, of the ratio calculator
    speculative_request_cap: int  # requests
    multi_node: MultiNode
    router: Router
    placeholders: tuple[Placeholder, ...]
    docker: Docker


class _Sources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: tuple[Source, ...]


@lru_cache(maxsize=256)
def words(text: str) -> tuple[str, ...]:
    """Catalog command text as words; quotes keep a value with blanks or braces whole."""
    return tuple(shlex.split(text))


@lru_cache(maxsize=256)
def assignments(text: str) -> tuple[tuple[str, str], ...]:
    """Catalog environment text, `NAME=VALUE` words, as pairs."""
    return tuple((name, value) for name, _, value in (word.partition("=") for word in words(text)))


@cache
def catalog() -> Catalog:
    """What all recipes share: models, ports, router, placeholders, docker options."""
    return load("recipes/catalog.yaml", Catalog)


@cache
def sources() -> Mapping[str, Source]:
    """Every source by id."""
    return {source.id: source for source in load("recipes/sources.yaml", _Sources).sources}


def source_titles(ids: tuple[str, ...]) -> tuple[str, ...]:
    """Plain names of sources, in the given order, each once."""
    return tuple(sources()[name].title for name in dict.fromkeys(ids))


@cache
def hardware() -> tuple[str, ...]:
    """Every platform that has recipes, in catalog order."""
    return tuple(catalog().cell_files)


@cache
def recipes_of(platform: str) -> tuple[Recipe, ...]:
    """The recipes of one platform in catalog order; raises UnusableInput for an unknown platform."""
    name = catalog().cell_files.get(platform)
    if name is None:
        raise UnusableInput(f"No recipes for {platform!r}.", where="--hardware", fix=f"Known: {' '.join(hardware())}.")
    file = _cell_file(name)
    return tuple(
        Recipe(
            id=f"{platform}/{cell.role}/{strategy}",
            hardware=platform,
            role=cell.role,
            strategy=strategy,
            cell=cell,
            env=assignments(file.env) + assignments(cell.env),
            multi_node_hints=file.multi_node_hints,
            sources=cell.sources or file.sources,
            confidence=cell.confidence or file.confidence,
            disputed=file.disputed + cell.disputed,
        )
        for cell in file.cells
        for strategy in cell.strategies
    )


@cache
def _cell_file(name: str) -> CellFile:
    return load(f"recipes/cells/{name}.yaml", CellFile)


@cache
def all_recipes() -> tuple[Recipe, ...]:
    """Every recipe of the catalog, platform by platform."""
    return tuple(recipe for name in hardware() for recipe in recipes_of(name))


def find_recipe(platform: str, role: str, strategy: str) -> Recipe | None:
    """The one recipe of a platform, role and strategy; None where none is published."""
    return next((r for r in recipes_of(platform) if (r.role, r.strategy) == (role, strategy)), None)
