"""From one recipe to one pool: overlays, preset, knobs, overrides, request cap, ratio and node flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perilune.errors import Refused, UnusableInput
from perilune.facts.hardware import Platform
from perilune.facts.options import Preset, presets
from perilune.facts.recipes import Recipe, catalog, words
from perilune.plan.compose.choice import Choice, Override
from perilune.plan.compose.conditions import Situation
from perilune.plan.compose.flags import (
    Flag,
    Flags,
    after_last,
    before_host,
    flatten,
    has,
    number,
    parse,
    replaced,
    value,
    without,
)
from perilune.plan.compose.knobs import apply_knobs, settings_for
from perilune.plan.compose.overlays import Env, Picked, apply, pick, situation
from perilune.plan.compose.overrides import apply_overrides, reaching
from perilune.plan.compose.presets import apply_preset, check_preset, node_flags, preset_gpus, preset_named
from perilune.plan.compose.ratio import ratio_inputs, shown
from perilune.plan.deployment import Pool, Unknown
from perilune.plan.server import Server

RATIO = "--mamba-full-memory-ratio"
STATE_SLOTS = "--max-mamba-cache-size"
REQUEST_CAP = "--max-running-requests"
MAX_NODES = 10_000

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
    idle: frozenset[Override]  # removals that found nothing


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
    yields = frozenset({"spec", "vlm_transport"}) if pd and recipe.role == "prefill" else frozenset()
    yields |= frozenset({"vlm_transport"}) if pd and recipe.role == "decode" else frozenset()
    picked = pick(choice, now, yields=yields)
    quant = _option(picked, "quant")
    flags = _with_model(cell, catalog().models[quant])
    done = apply(flags, recipe.env, picked)
    flags, env, notes = done.flags, done.env, done.notes
    if pairing:
        flags, _ = replaced(flags, {flag.name for flag in parse(words(pairing))}, parse(words(pairing)))
    if preset is not None:
        flags, env = apply_preset(flags, env, preset, gpus, platform)
        notes += (f"{preset.title}: {preset.trades}", *presets().notes[:1])
        notes += presets().notes[1:2] if picked.situation.spec != "none" else ()
    flags, env, said = apply_knobs(flags, env, settings_for(choice.knobs, _knob_situation(picked, flags)))
    flags, env, idle = apply_overrides(flags, env, reaching(choice.overrides, recipe.role))
    flags = _settled(flags, recipe)
    return Draft(recipe, platform, picked, flags, env, done.hints, notes + said, idle)


def finish_pool(draft: Draft, choice: Choice, *, pd: bool) -> Pool:
    """Add what is computed from the composed command: request cap, ratio and node flags."""
    recipe, platform = draft.recipe, draft.platform
    flags, said = _with_request_cap(draft.flags, choice, pd=pd)
    notes = (*draft.notes, *said)
    flags = _with_ratio(flags, dict(draft.env), choice)
    gpus = _world(flags)
    nodes = _nodes(flags, gpus, platform)
    if nodes > 1:
        flags = _with_node_flags(flags, nodes, recipe)
    if choice.preset and nodes == 1 < recipe.cell.nodes:
        notes += (f"The page's panel keeps --nnodes {recipe.cell.nodes} of its base; {gpus} GPUs fit one node.",)
    quant = _option(draft.picked, "quant")
    return Pool(
        role=recipe.role,
        platform=platform.id,
        nodes=nodes,
        gpus=gpus,
        server=Server(argv=flatten(flags), env=draft.env),
        recipe=recipe.id,
        quant=quant,
        spec=_option(draft.picked, "spec"),
        image=platform.images.get(quant, catalog().fallback_image),
        verification=recipe.cell.verification,
        hints=draft.hints + (recipe.multi_node_hints if nodes > 1 else ()),
        notes=(
            VERIFIED if recipe.cell.verification == "verified" else STARTING_POINT,
            *recipe.cell.notes,
            *notes,
        ),
        unpublished=_unpublished(recipe, flags, draft.env),
    )


def _option(picked: Picked, overlay: str) -> str:
    return next(option.id for owner, option in picked.options if owner.id == overlay)


def _with_model(flags: Flags, model: str) -> Flags:
    return tuple(Flag(f.name, tuple(model if v == "<model>" else v for v in f.values)) for f in flags)


def _knob_situation(picked: Picked, flags: Flags) -> Situation:
    return replace(picked.situation, dcp=has(flags, "--dcp-size"))


def _gpus(choice: Choice, preset: Preset | None, platform: Platform, cell: Flags) -> int:
    if preset is not None:
        return preset_gpus(choice.gpus, platform)
    own = _world(cell)
    if choice.gpus is not None and choice.gpus != own:
        fix = f"Nearest: --gpus {own}."
        if platform.family == "blackwell":
            fix += " Other sizes come with --preset peak-throughput."
        raise Refused(f"This recipe runs on {own} GPUs.", where="--gpus", fix=fix)
    return own


def _with_request_cap(flags: Flags, choice: Choice, *, pd: bool) -> tuple[Flags, tuple[str, ...]]:
    """Under speculation an unset request cap becomes 48, so a known concurrency is written down."""
    cap = catalog().speculative_request_cap
    given = value(flags, REQUEST_CAP)
    unknown = given is not None and given.startswith("<")
    speculating = has(flags, "--speculative-algorithm")
    if given is not None and not unknown:
        return flags, ()
    if not unknown and not speculating:
        return flags, ()
    if choice.concurrency is None:
        if unknown:
            return flags, ()
        return flags, (f"Speculation without {REQUEST_CAP} caps the server at {cap} requests; give --concurrency.",)
    wanted = choice.concurrency * (2 if pd else 1)
    kept, rest = replaced(flags, {REQUEST_CAP}, (Flag(REQUEST_CAP, (str(wanted),)),))
    why = "twice the concurrency on both roles of a PD pair" if pd else "the concurrency"
    return before_host(kept, rest), (f"{REQUEST_CAP} {wanted} is {why}; without it speculation caps at {cap}.",)


def _with_ratio(flags: Flags, env: dict[str, str], choice: Choice) -> Flags:
    if has(flags, RATIO) or has(flags, STATE_SLOTS) or value(flags, "--device") == "npu":
        return flags
    length = catalog().average_request_tokens
    if choice.isl is not None and choice.osl is not None:
        length = choice.isl + choice.osl
    ratio = ratio_inputs(flags, env).ratio(length)
    return flags if ratio is None else before_host(flags, (Flag(RATIO, (shown(ratio),)),))


def _world(flags: Flags) -> int:
    """GPUs of one server: tensor-parallel ranks, pipeline stages, and replicas without attention DP."""
    replicas = 1 if has(flags, "--enable-dp-attention") else number(flags, "--dp-size", 1)
    gpus = number(flags, "--tp-size", 1) * number(flags, "--pp-size", 1) * replicas
    if gpus < 1:
        raise UnusableInput("The server has no GPU.", where="--tp-size", fix="Set sizes of 1 or more.")
    return gpus


def _nodes(flags: Flags, gpus: int, platform: Platform) -> int:
    nodes = number(flags, "--nnodes", -(-gpus // platform.gpus_per_node))
    if not 0 < nodes <= MAX_NODES:
        raise UnusableInput(f"{nodes} nodes is not between 1 and {MAX_NODES:,}.", where="--set nnodes")
    return nodes


def _with_node_flags(flags: Flags, nodes: int, recipe: Recipe) -> Flags:
    node = catalog().multi_node
    missing = tuple(f for f in node_flags(nodes, recipe.cell.head or node.head) if not has(flags, f.name))
    return after_last(flags, node.anchors, node.fallback_anchor, missing)


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
