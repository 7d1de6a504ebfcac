"""From a command line to the engine's argument record, before anything is resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from perilune.errors import UnusableInput
from perilune.facts.flags import defaults, environment
from perilune.plan.commandline.form import serves
from perilune.plan.resolve import config_file, parser
from perilune.plan.resolve.state import Rejected
from perilune.plan.server import Server

_LOG_LEVELS = frozenset({"CRITICAL", "DEBUG", "ERROR", "FATAL", "INFO", "NOTSET", "WARN", "WARNING", "BASIC_FORMAT"})


def arguments(server: Server, *, model: str | None = None) -> tuple[dict[str, Any], frozenset[str]]:
    """Every field of the record by the engine's name, and the fields that were written.

    `model` stands in for an absent --model-path, which the engine demands. Raises Rejected (stage
    `parse`) with the engine's own text, or UnusableInput when the command does not start an LLM server.
    """
    merged = config_file.merge(engine_argv(server))
    written = parser.parse(merged, model=model)
    written.pop("config", None)
    level = str(written.get("log_level", "info")).upper()
    if level not in _LOG_LEVELS:
        raise Rejected(f"AttributeError: module 'logging' has no attribute {level!r}", "parse")
    values = {**_copied_defaults(), **written}
    values["_radix_eviction_policy_explicitly_set"] = any(
        word.partition("=")[0] == "--radix-eviction-policy" for word in merged
    )
    return values, frozenset(written)


def engine_argv(server: Server) -> list[str]:
    """The words that reach the engine's parser: `sglang serve` takes a positional model and --model-type."""
    words = list(server.argv)
    if not serves(server.program):
        return words
    words, backend = _without_model_type(words)
    if backend not in ("auto", "llm"):
        raise UnusableInput(f"It starts a {backend[:40]!r} server.", where="--model-type", fix="Only llm is known.")
    if words and not words[0].startswith("-"):
        words.insert(0, "--model-path")
    return words


def _without_model_type(words: Sequence[str]) -> tuple[list[str], str]:
    rest, backend, index = [], "auto", 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--model-type":
            if index == len(words):
                raise Rejected("ValueError: Error: --model-type requires a value.", "parse")
            backend = words[index]
            index += 1
        elif word.startswith("--model-type="):
            backend = word.partition("=")[2]
        else:
            rest.append(word)
    if not backend:
        raise Rejected("ValueError: Error: --model-type requires a non-empty value.", "parse")
    return rest, backend


def _copied_defaults() -> dict[str, Any]:
    return {**defaults(), **{name: list(value) for name, value in _list_defaults()}}


@cache
def _list_defaults() -> tuple[tuple[str, list[Any]], ...]:
    return tuple((name, value) for name, value in defaults().items() if isinstance(value, list))


def engine_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables as the engine sees them: older spellings are read under their present names."""
    seen = dict(env)
    for name, value in env.items():
        if name.startswith("SGL_"):
            seen["SGLANG_" + name.removeprefix("SGL_")] = value
    known = environment() if seen else {}
    for name, value in tuple(seen.items()):
        entry = known.get(name)
        if entry is not None and entry.deprecated_name == name:
            seen.setdefault(entry.name, value)
    return seen
