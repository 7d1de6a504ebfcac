"""Playground knobs: edits of a composed command, each with its own place."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from perilune.errors import Refused, UnusableInput
from perilune.facts.options import Knob, KnobOption, knobs
from perilune.facts.recipes import assignments, words
from perilune.plan.compose.choice import ROLES
from perilune.plan.compose.conditions import Situation, first_refusal, refuse
from perilune.plan.compose.flags import Flags, after_first, before_host, parse, replaced, value, without
from perilune.plan.compose.overlays import Env

Setting = tuple[Knob, KnobOption]


def settings_for(picks: Sequence[tuple[str, str]], now: Situation) -> tuple[Setting, ...]:
    """The knob settings that reach one role, in catalog order; raises Refused or UnusableInput."""
    chosen: dict[str, str] = {}
    for name, wanted in picks:
        role, knob = _scoped(name)
        if (role or now.role) == now.role and now.role in knob.roles:
            chosen[knob.id] = wanted
    return tuple(_setting(knob, chosen[knob.id], now) for knob in knobs().values() if knob.id in chosen)


def check_reach(picks: Sequence[tuple[str, str]], roles: Sequence[str]) -> None:
    """Raise Refused for a knob that none of the composed roles shows."""
    for name, _ in picks:
        role, knob = _scoped(name)
        reached = [r for r in roles if r in knob.roles and (role or r) == r]
        if not reached:
            fix = f"It belongs to {' and '.join(knob.roles)}."
            raise Refused(f"The knob {knob.id} reaches no pool of this deployment.", where="--knob", fix=fix)


def _scoped(name: str) -> tuple[str | None, Knob]:
    role, colon, rest = name.partition(":")
    scoped = bool(colon) and role in ROLES
    ident = rest if scoped else name
    knob = knobs().get(ident)
    if knob is None:
        near = get_close_matches(ident[:80], knobs(), n=1, cutoff=0.5)
        fix = f"Did you mean {near[0]}?" if near else f"Known: {' '.join(knobs())}."
        raise UnusableInput(f"Unknown knob {ident[:60]!r}.", where="--knob", fix=fix)
    return (role if scoped else None), knob


def _setting(knob: Knob, wanted: str, now: Situation) -> Setting:
    option = knob.option(wanted)
    if option is None:
        known = " ".join(option.id for option in knob.options)
        raise UnusableInput(f"Unknown value {wanted[:60]!r}.", where=f"--knob {knob.id}", fix=f"Known: {known}.")
    refusal = first_refusal((*knob.refused, *option.refused), now)
    if refusal is not None:
        raise refuse(refusal, f"--knob {knob.id}={wanted}", now)
    return knob, option


def apply_knobs(flags: Flags, env: Env, settings: Sequence[Setting]) -> tuple[Flags, Env, tuple[str, ...]]:
    """Turn the knobs one after another. Returns flags, environment and remarks; raises Refused."""
    notes: list[str] = []
    for knob, option in settings:
        if knob.needs:
            name, wanted = words(knob.needs)
            if value(flags, name) != wanted:
                raise Refused(
                    f"{knob.title} needs {knob.needs}.",
                    where=f"--knob {knob.id}",
                    fix="Nearest: --knob moe-backend=megamoe.",
                )
        flags = _turn(flags, knob, option)
        gone = {*words(knob.replaces_env), *words(option.replaces_env)}
        env = tuple(pair for pair in env if pair[0] not in gone) + assignments(option.env)
        notes += [f"{knob.title}: {option.note}"] if option.note else []
    return flags, env, tuple(notes)


def _turn(flags: Flags, knob: Knob, option: KnobOption) -> Flags:
    added = parse(words(option.add))
    names = words(knob.replaces)
    if added and added == tuple(flag for flag in flags if flag.name in names):
        return flags
    if knob.after:
        return after_first(without(flags, names), words(knob.after), added)
    kept, rest = replaced(flags, names, added)
    return before_host(kept, rest)
