"""Overlays: quantization, vision transport, speculation and HiCache, applied to a cell in that order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perilune.errors import UnusableInput
from perilune.facts.options import Overlay, OverlayOption, overlays
from perilune.facts.recipes import Recipe, assignments, words
from perilune.plan.compose.choice import Choice
from perilune.plan.compose.conditions import Situation, first_refusal, holds, refuse
from perilune.plan.compose.flags import Flag, Flags, has, number, parse, replaced

FOLDED = ("--tp-size", "--pp-size", "--dcp-size", "--ep-size")

Env = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Picked:
    """The option taken of every overlay that the role shows, and why one is not what was asked."""

    options: tuple[tuple[Overlay, OverlayOption], ...]
    situation: Situation
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlaid:
    """A cell with its overlays: flags, environment, hints for people and remarks on what was dropped."""

    flags: Flags
    env: Env
    hints: tuple[str, ...]
    notes: tuple[str, ...]


def situation(recipe: Recipe, family: str, flags: Flags) -> Situation:
    """What conditions ask about a bare cell."""
    pipelined = number(flags, "--pp-size", 1) > 1
    return Situation(
        hardware=recipe.hardware,
        family=family,
        role=recipe.role,
        pipelined=pipelined and not recipe.cell.collapses,
        collapsible=pipelined and recipe.cell.collapses,
        dcp=has(flags, "--dcp-size"),
        attention_dp=number(flags, "--attn-dp-size", 1) > 1,
    )


def pick(choice: Choice, now: Situation, *, yields: frozenset[str] = frozenset()) -> Picked:
    """Take an option of every overlay; raises Refused for one that is asked for and forbidden.

    Overlays named in `yields` fall back to their first allowed option instead of refusing, with a note.
    """
    taken: list[tuple[Overlay, OverlayOption]] = []
    notes: list[str] = []
    for overlay in overlays():
        option, note = _pick(overlay, getattr(choice, overlay.id), now, overlay.id in yields)
        if option is None:
            continue
        taken.append((overlay, option))
        notes += [note] if note else []
        now = _with_option(now, overlay.id, option.id)
    return Picked(tuple(taken), now, tuple(notes))


def _with_option(now: Situation, overlay: str, option: str) -> Situation:
    match overlay:
        case "quant":
            return replace(now, quant=option)
        case "spec":
            return replace(now, spec=option)
        case "hicache":
            return replace(now, hicache=option)
        case _:
            return now


def allowed(overlay: Overlay, now: Situation) -> tuple[str, ...]:
    """The option ids of an overlay that this situation allows."""
    if now.role not in overlay.roles:
        return ()
    return tuple(option.id for option in overlay.options if first_refusal(option.refused, now) is None)


def _pick(overlay: Overlay, asked: str | None, now: Situation, yields: bool) -> tuple[OverlayOption | None, str]:
    option = _default(overlay, now) if asked is None else overlay.option(asked)
    if option is None:
        known = " ".join(known.id for known in overlay.options)
        raise UnusableInput(f"Unknown value {asked!r}.", where=overlay.flag, fix=f"Known: {known}.")
    refusal = first_refusal(option.refused, now)
    if now.role not in overlay.roles:
        if asked is not None and refusal is not None and not yields:
            raise refuse(refusal, f"{overlay.flag} {option.id}", now)
        return None, ""
    if refusal is None:
        return option, ""
    if asked is not None and not yields:
        raise refuse(refusal, f"{overlay.flag} {option.id}", now)
    first = allowed(overlay, now)[0]
    return overlay.option(first), f"{overlay.title} of {now.role} is {first}, not {option.id}: {refusal.reason}"


def _default(overlay: Overlay, now: Situation) -> OverlayOption:
    special = (o for o in overlay.options if o.default_on is not None and holds(o.default_on, now))
    usual = (o for o in overlay.options if o.default)
    return next(special, None) or next(usual)


def apply(flags: Flags, env: Env, picked: Picked) -> Overlaid:
    """Strip and add what the picked options say: stripped flags keep their place, new ones go to the end."""
    now = picked.situation
    strip: set[str] = set()
    added: list[Flag] = []
    hints: list[str] = []
    notes: list[str] = list(picked.notes)
    for _, option in picked.options:
        if option.collapse and now.collapsible:
            strip.update(FOLDED)
            added += _folded(flags, keep_dcp=now.hicache != "l3")
        strip.update(words(option.strip))
        for edit in option.strips:
            if holds(edit.when, now):
                strip.update(words(edit.flags))
                notes.append(edit.why)
        for edit in option.add:
            if holds(edit.when, now):
                added += parse(words(edit.flags))
        env += tuple(pair for e in option.env if holds(e.when, now) for pair in assignments(e.env))
        hints += [hint.text for hint in option.hints if holds(hint.when, now)]
    kept, rest = replaced(flags, strip, tuple(added))
    return Overlaid(kept + rest, env, tuple(hints), tuple(notes))


def _folded(flags: Flags, *, keep_dcp: bool) -> list[Flag]:
    """The widths of a cell whose pipeline stages became tensor-parallel ranks; the GPU count stays."""
    stages = number(flags, "--pp-size", 1)
    names = ["--tp-size"]
    names += ["--dcp-size"] if keep_dcp and has(flags, "--dcp-size") else []
    names += ["--ep-size"] if has(flags, "--ep-size") else []
    return [Flag(name, (str(number(flags, name, 1) * stages),)) for name in names]
