"""What SGLang 0.5.23 makes of a command line on a platform."""

from __future__ import annotations

from dataclasses import replace

from perilune.errors import UnusableInput
from perilune.facts.flags import defaults
from perilune.facts.hardware import Platform
from perilune.plan.commandline.hints import hints
from perilune.plan.model.config import ModelConfig, known_config
from perilune.plan.resolve.absurd import refuse_absurd
from perilune.plan.resolve.arguments import arguments, engine_argv, engine_environment
from perilune.plan.resolve.state import Rejected, Resolved
from perilune.plan.server import Server

DEFAULT_MODEL = "moonshotai/Kimi-K3"
DEFAULT_DRAFT = "RadixArk/Kimi-K3-DSpark"

__all__ = ["DEFAULT_DRAFT", "DEFAULT_MODEL", "resolve"]


def resolve(
    server: Server,
    platform: Platform,
    *,
    model: ModelConfig | None = None,
    draft: ModelConfig | None = None,
) -> Resolved:
    """Parse, look up the model and its draft, and run the engine's resolution.

    A rejection by the engine is an answer (`accepted` is False), with hints on what to write instead
    among its warnings. Raises UnusableInput for what cannot be judged: an unknown model, an absurd value.
    `model` and `draft` replace the looked-up configs; `model` also stands in for an absent --model-path.
    """
    # Here, so that reading one step or the state does not load every other step.
    from perilune.plan.resolve.pipeline import resolve_values

    env = engine_environment(server.environment)
    try:
        values, given = arguments(server, model=model.path if model else None)
    except Rejected as rejection:
        return _rejected_by_parser(server, env, platform, model or known_config(DEFAULT_MODEL), rejection)
    refuse_absurd(values, given)
    target = model or known_config(str(values["model_path"]))
    assumptions = [target.assumption] if target.assumption else []
    draft_path = values["speculative_draft_model_path"]
    if draft is None and draft_path is not None:
        draft, assumed = _draft_config(str(draft_path))
        assumptions += assumed
    resolved = resolve_values(values, given=given, env=env, platform=platform, model=target, draft=draft)
    return _with_warnings(resolved, assumptions)


def _draft_config(path: str) -> tuple[ModelConfig, list[str]]:
    try:
        found = known_config(path)
    except UnusableInput:
        assumed = f"Nothing is known of the draft {path[:200]!r}; it is taken to be {DEFAULT_DRAFT}."
        return known_config(DEFAULT_DRAFT), [assumed]
    return found, [found.assumption] if found.assumption else []


def _with_warnings(resolved: Resolved, more: list[str]) -> Resolved:
    return replace(resolved, warnings=(*more, *resolved.warnings)) if more else resolved


def _rejected_by_parser(
    server: Server, env: dict[str, str], platform: Platform, model: ModelConfig, rejection: Rejected
) -> Resolved:
    try:
        advice = hints(engine_argv(server))
    except Rejected:
        advice = ()
    return Resolved(
        accepted=False,
        error=rejection.message,
        stage="parse",
        values=dict(defaults()),
        given=frozenset(),
        env=env,
        platform=platform,
        model=model,
        draft=None,
        rewrites=(),
        warnings=advice,
    )
