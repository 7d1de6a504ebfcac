"""What the catalog offers: one row per recipe, and every choice it allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from perilune.errors import Refused, UnusableInput
from perilune.facts.hardware import platform
from perilune.facts.options import overlays, presets
from perilune.facts.recipes import Recipe, hardware, recipes_of, source_titles
from perilune.plan.compose.choice import Choice
from perilune.plan.compose.compose import ROLES, compose
from perilune.plan.compose.conditions import first_refusal
from perilune.plan.compose.flags import Flags, number, parse
from perilune.plan.compose.overlays import allowed, situation
from perilune.plan.deployment import Deployment

SHAPE = (
    ("PP", "--pp-size"),
    ("TP", "--tp-size"),
    ("DP", "--attn-dp-size"),
    ("DCP", "--dcp-size"),
    ("EP", "--ep-size"),
)


@dataclass(frozen=True, slots=True)
class RecipeRow:
    """One recipe as a reader compares it. Tuples hold the option ids it allows."""

    id: str
    hardware: str
    role: str
    strategy: str
    nodes: int
    gpus: int
    shape: str  # such as PP2 TP8 DCP8 EP8
    verification: str
    completeness: str
    confidence: str
    large_scale: bool
    quant: tuple[str, ...]
    spec: tuple[str, ...]
    vlm_transport: tuple[str, ...]
    hicache: tuple[str, ...]
    presets: tuple[str, ...]
    sources: tuple[str, ...]
    notes: tuple[str, ...]


def recipes(
    hardware_id: str | None = None, role: str | None = None, strategy: str | None = None
) -> tuple[RecipeRow, ...]:
    """The recipes that match every given filter; raises UnusableInput for a name nobody knows."""
    names = hardware() if hardware_id is None else (platform(hardware_id).id,)
    known_roles = ("unified", "prefill", "decode")
    if role is not None and role not in known_roles:
        raise UnusableInput(f"Unknown role {role[:40]!r}.", where="--role", fix=f"Known: {' '.join(known_roles)}.")
    found = [recipe for name in names for recipe in recipes_of(name)]
    strategies = sorted({recipe.strategy for recipe in found})
    if strategy is not None and strategy not in strategies:
        fix = f"Known here: {' '.join(strategies)}."
        raise UnusableInput(f"Unknown strategy {strategy[:40]!r}.", where="--strategy", fix=fix)
    return tuple(
        _row(recipe)
        for recipe in found
        if (role is None or recipe.role == role) and (strategy is None or recipe.strategy == strategy)
    )


def _row(recipe: Recipe) -> RecipeRow:
    place = platform(recipe.hardware)
    flags = parse(recipe.argv)
    now = situation(recipe, place.family, flags)
    options = {overlay.id: allowed(overlay, now) for overlay in overlays()}
    offered = first_refusal(presets().refused, now) is None
    cell = recipe.cell
    return RecipeRow(
        id=recipe.id,
        hardware=recipe.hardware,
        role=recipe.role,
        strategy=recipe.strategy,
        nodes=cell.nodes,
        gpus=number(flags, "--tp-size", 1) * number(flags, "--pp-size", 1),
        shape=shape(flags),
        verification=cell.verification,
        completeness=cell.completeness,
        confidence=recipe.confidence,
        large_scale=cell.large_scale,
        quant=options["quant"],
        spec=options["spec"],
        vlm_transport=options["vlm_transport"],
        hicache=options["hicache"],
        presets=tuple(preset.id for preset in presets().presets) if offered else (),
        sources=source_titles(recipe.sources),
        notes=cell.notes,
    )


def shape(flags: Flags) -> str:
    """The parallel widths of a command above 1, such as `PP2 TP8 DCP8 EP8`; TP always shows."""
    widths = ((short, number(flags, name, 1)) for short, name in SHAPE)
    return " ".join(f"{short}{width}" for short, width in widths if width > 1 or short == "TP")


def all_choices() -> Iterator[tuple[Choice, Deployment]]:
    """Every choice the catalog allows, with its deployment: cell, role, overlays, preset and size."""
    for base in _bases():
        for preset, gpus in _sizes():
            for quant, transport, spec, hicache in product(*_option_ids()):
                choice = replace(
                    base,
                    preset=preset,
                    gpus=gpus,
                    quant=quant,
                    vlm_transport=transport,
                    spec=spec,
                    hicache=hicache,
                )
                try:
                    yield choice, compose(choice)
                except Refused:
                    continue


def _bases() -> Iterator[Choice]:
    """Every cell alone and every pair of roles, by platform."""
    for name in hardware():
        for mode, roles in ROLES.items():
            strategies = [[r.strategy for r in recipes_of(name) if r.role == role] for role in roles]
            for picked in product(*strategies):
                named = dict(zip(roles, picked, strict=True))
                yield Choice(
                    hardware=name,
                    mode=mode,
                    strategy=named.get("decode") or named.get("unified"),
                    prefill_strategy=named.get("prefill"),
                )


def _sizes() -> list[tuple[str | None, int | None]]:
    sized = product((preset.id for preset in presets().presets), presets().gpus)
    return [(None, None), *sized]


def _option_ids() -> list[list[str]]:
    return [[option.id for option in overlay.options] for overlay in overlays()]
