"""Edits by hand on top of a recipe: `--set`, `--unset` and `--env`."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.errors import UnusableInput
from perilune.plan.compose.choice import Override
from perilune.plan.compose.flags import Flags, before_host, has, replaced, without
from perilune.plan.compose.overlays import Env


def reaching(overrides: Sequence[Override], role: str) -> tuple[Override, ...]:
    """The overrides that reach a role."""
    return tuple(o for o in overrides if o.role in (None, role))


def apply_overrides(flags: Flags, env: Env, overrides: Sequence[Override]) -> tuple[Flags, Env, frozenset[Override]]:
    """Apply them in order: a flag that is set keeps its place, a new one goes before `--host`.

    Returns flags, environment, and the removals that found nothing to remove.
    """
    idle: set[Override] = set()
    for edit in overrides:
        match edit.kind:
            case "set":
                kept, rest = replaced(flags, {edit.name}, (edit.flag,))
                flags = before_host(_once(kept, edit.name), rest)
            case "unset":
                idle |= set() if has(flags, edit.name) else {edit}
                flags = without(flags, {edit.name})
            case "env":
                env = _with_env(env, edit.name, edit.values[0])
            case "unset-env":
                idle |= set() if any(name == edit.name for name, _ in env) else {edit}
                env = tuple(pair for pair in env if pair[0] != edit.name)
    return flags, env, frozenset(idle)


def removed(overrides: Sequence[Override]) -> dict[str, Override]:
    """The flags that are gone after all overrides, by name: removed, and not written again later."""
    last = {edit.name: edit for edit in overrides if edit.kind in ("set", "unset")}
    return {name: edit for name, edit in last.items() if edit.kind == "unset"}


def check_removals(overrides: Sequence[Override], pools: Sequence[tuple[str, frozenset[Override]]]) -> None:
    """Raise UnusableInput for a removal that is idle in every pool it reaches; `pools` are (role, idle)."""
    for edit in overrides:
        reached = [idle for role, idle in pools if edit.role in (None, role)]
        if reached and all(edit in idle for idle in reached):
            raise UnusableInput(f"{edit.name} is not on this command.", where="--unset", fix="Leave it out.")


def _once(flags: Flags, name: str) -> Flags:
    """Keep the first flag of a name; a repeated one is dropped."""
    first = next((i for i, flag in enumerate(flags) if flag.name == name), None)
    return tuple(flag for i, flag in enumerate(flags) if flag.name != name or i == first)


def _with_env(env: Env, name: str, given: str) -> Env:
    if any(known == name for known, _ in env):
        return tuple((known, given if known == name else old) for known, old in env)
    return (*env, (name, given))
