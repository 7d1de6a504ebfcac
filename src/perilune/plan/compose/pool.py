"""From one recipe to one pool: overlays, preset, knobs, overrides, request cap, ratio and node flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perilune.errors import Refused
from perilune.facts.hardware import Platform
from perilune.facts.options import Preset, presets
from perilune.facts.recipes import Recipe, catalog, words
from perilune.plan.compose.choice import Choice, Override
from perilune.plan.compose.computed import (
    REQUEST_CAP,
    STATE_SLOTS,
    gpus_of,
    nodes_of,
    with_node_flags,
    with_ratio,
    with_request_cap,
)
from perilune.plan.compose.conditions import Situation
from perilune.plan.compose.flags import Flag, Flags, flatten, has, parse, replaced, without
from perilune.plan.compose.knobs import apply_knobs, settings_for
from perilune.plan.compose.overlays import Env, Picked, apply, pick, situation
from perilune.plan.compose.overrides import apply_overrides, reaching, removed
from perilune.plan.compose.presets import apply_preset, check_preset, preset_gpus, preset_named
from perilune.plan.deployment import Pool, Unknown
from perilune.plan.server import Server

# In a pair, an overlay that a role cannot take gives way to the other role's.
YIELDS = {"prefill": frozenset({"spec"}), "decode": frozenset({"vlm_transport"})}

VERIFIED = "Verified: a published serving round on final weights; accuracy was not re-measured."
STARTING_POINT = "Not verified on final weights: a starting point to measure."


@dataclass(frozen=True, slots=True)
class Draft:
    """A pool before its overrides are judged: what it was made from, its flags and environment."""

    recipe: Recipe
    platform: Platform
    picked: Picked
    flags: Flags
    env: Env
    hints: tuple[str, ...]
    notes: tuple[str, ...]
    idle: frozenset[Override]  # removals that found nothing so far


def draft_pool(choice: Choice, recipe: Recipe, platform: Platform, *, pairing: str = "", pd: bool = False) -> Draft:
    """Compose a recipe up to and including the user's overrides.

    `pairing` are flags that the decode role asks of this prefill. With `pd`, speculation of the prefill role
    gives way where only decode can run it. Raises Refused or UnusableInput.
    """
    cell = parse(words(recipe.cell.flags))
    now = situation(recipe, platform.family, cell)
    preset = preset_named(choice.preset) if choice.preset else None
    gpus = _gpus(choice, preset, platform, cell)
    if preset is not None:
        now = replace(now, attention_dp=gpus > presets().attention_tp)
        check_preset(preset, replace(now, spec=choice.spec or "dspark", hicache=choice.hicache or "off"))
    picked = pick(choice, now, yields=YIELDS[recipe.role] if pd else frozenset())
    quant = _option(picked, "quant")
    flags = _with_model(cell, catalog().models[quant])
    done = apply(flags, recipe.env, picked)
    flags, env, notes = done.flags, done.env, done.notes
    if pairing:
        flags, _ = replaced(flags, {flag.name for flag in parse(words(pairing))}, parse(words(pairing)))
    if preset is not None:
        flags, env = apply_preset(flags, env, preset, gpus, platform)
        notes += (f"{preset.title}: {preset.trades}", presets().unverified, presets().prefix_cache)
        notes += (presets().with_speculation,) if picked.situation.spec != "none" else ()
    flags, env, said = apply_knobs(flags, env, settings_for(choice.knobs, _knob_situation(picked, flags)))
    flags, env, idle = apply_overrides(flags, env, reaching(choice.overrides, recipe.role))
    flags = _settled(flags, recipe)
    return Draft(recipe, platform, picked, flags, env, done.hints, notes + said, idle)


@dataclass(frozen=True, slots=True)
class Finished:
    """A composed pool, and the removals that found nothing to remove on it."""

    pool: Pool
    idle: frozenset[Override]


def finish_pool(draft: Draft, choice: Choice, *, pd: bool) -> Finished:
    """Add what is computed from the composed command: request cap, ratio and node flags, where not removed."""
    recipe, platform = draft.recipe, draft.platform
    edits = reaching(choice.overrides, recipe.role)
    own = any(edit.kind == "set" and edit.name == REQUEST_CAP for edit in edits)
    capped, said = with_request_cap(draft.flags, choice, pd=pd, own=own)
    whole = with_ratio(capped, dict(draft.env), choice)
    gpus, nodes = gpus_of(whole), nodes_of(whole, platform)
    whole = with_node_flags(whole, nodes, recipe)
    gone = removed(edits)
    by_ratio = with_ratio(without(capped, {STATE_SLOTS}), dict(draft.env), choice)  # before a pin took its place
    found = {edit for edit in draft.idle if has(whole, edit.name) or has(by_ratio, edit.name)}
    flags = without(whole, gone)
    notes = (*draft.notes, *(() if REQUEST_CAP in gone else said))
    if choice.preset and nodes == 1 < recipe.cell.nodes:
        notes += (f"The page's panel keeps --nnodes {recipe.cell.nodes} of its base; {gpus} GPUs fit one node.",)
    quant = _option(draft.picked, "quant")
    changed = _edited(choice, draft.picked)
    verified = recipe.cell.verification == "verified" and not changed
    pool = Pool(
        role=recipe.role,
        platform=platform.id,
        nodes=nodes,
        gpus=gpus,
        server=Server(argv=flatten(flags), env=draft.env),
        recipe=recipe.id,
        quant=quant,
        spec=_option(draft.picked, "spec"),
        image=platform.images.get(quant, catalog().fallback_image),
        verification="verified" if verified else "in-progress",
        hints=draft.hints + (recipe.multi_node_hints if nodes > 1 else ()),
        notes=(
            VERIFIED if verified else STARTING_POINT,
            *(f"The recipe before your changes: {note}" if changed else note for note in recipe.cell.notes),
            *notes,
        ),
        unpublished=_unpublished(recipe, flags, draft.env),
    )
    return Finished(pool, draft.idle - found)


def _edited(choice: Choice, picked: Picked) -> bool:
    """Whether the command is no longer the published one: a preset, a knob, an edit, HiCache or transport."""
    changed = {"vlm_transport": "auto", "hicache": "off"}
    overlaid = any(o.id in changed and option.id != changed[o.id] for o, option in picked.options)
    return bool(choice.preset or choice.knobs or choice.overrides) or overlaid


def _option(picked: Picked, overlay: str) -> str:
    return next(option.id for owner, option in picked.options if owner.id == overlay)


def _with_model(flags: Flags, model: str) -> Flags:
    return tuple(Flag(f.name, tuple(model if v == "<model>" else v for v in f.values)) for f in flags)


def _knob_situation(picked: Picked, flags: Flags) -> Situation:
    return replace(picked.situation, dcp=has(flags, "--dcp-size"))


def _gpus(choice: Choice, preset: Preset | None, platform: Platform, cell: Flags) -> int:
    if preset is not None:
        return preset_gpus(choice.gpus, platform)
    own = gpus_of(cell)
    if choice.gpus is not None and choice.gpus != own:
        fix = f"Nearest: --gpus {own}."
        if platform.family == "blackwell":
            fix += " Other sizes come with --preset peak-throughput."
        raise Refused(f"This recipe runs on {own} GPUs.", where="--gpus", fix=fix)
    return own


def _unpublished(recipe: Recipe, flags: Flags, env: Env) -> tuple[Unknown, ...]:
    text = "\n".join((*flatten(flags), *(given for _, given in env)))
    return tuple(
        Unknown(u.placeholder, u.flag, u.what, u.assume, u.because)
        for u in recipe.cell.unpublished
        if u.placeholder in text
    )


def _settled(flags: Flags, recipe: Recipe) -> Flags:
    """Drop the stand-in of an unpublished flag once the flag that settles it is there."""
    return without(flags, {u.placeholder for u in recipe.cell.unpublished if has(flags, u.flag)})
