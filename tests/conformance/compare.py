"""Our resolution beside the engine's verdict: every field, the acceptance, the error text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from perilune.errors import PeriluneError
from perilune.facts.flags import defaults
from perilune.facts.hardware import platform
from perilune.plan.model.config import known_config
from perilune.plan.resolve import DEFAULT_MODEL, resolve
from perilune.plan.resolve.state import Resolved
from perilune.plan.server import Server

NOT_COMPARED = {
    "random_seed": "drawn at random when it is not given",
}


def ours(case: Mapping[str, Any]) -> Resolved | PeriluneError | Exception:
    """What we make of a case; an exception is a result too."""
    server = Server(tuple(case["argv"]), tuple((case.get("env") or {}).items()), program=())
    try:
        return resolve(server, platform(str(case["platform"])), model=_default_model(case["argv"]))
    except Exception as error:  # a crash is reported with the case that causes it
        return error


def _default_model(argv: Sequence[str]) -> Any:
    given = any(word.partition("=")[0] in ("--model-path", "--model") for word in argv)
    return None if given else known_config(DEFAULT_MODEL)


def plain(value: Any) -> Any:
    """A value as JSON would hold it."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def differences(case: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """What differs between our answer and the engine's verdict, one sentence each."""
    mine = ours(case)
    if isinstance(mine, Exception):
        return [f"we raise {type(mine).__name__}: {mine}"]
    if mine.accepted != verdict["ok"]:
        said = verdict.get("error", "accepted")
        return [f"acceptance: engine {verdict['ok']} ({said}), ours {mine.accepted} ({mine.error})"]
    if not mine.accepted:
        wanted = _with_names(verdict["error"], verdict)
        return [] if mine.error == wanted else [f"error: engine {wanted!r}, ours {mine.error!r}"]
    return field_differences(mine, expected_values(verdict))


def expected_values(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Every field as the engine resolved it, with the names that the harness replaced put back."""
    changed = _with_names(verdict["resolved_nondefault"], verdict)
    return {**defaults(), **changed}


def _with_names(value: Any, verdict: Mapping[str, Any]) -> Any:
    """Put the written model names back where the harness put its local folders."""
    swaps = {}
    for swap in verdict.get("path_swaps") or ():
        written, _, folder = swap.rpartition(" -> ")
        swaps[folder] = DEFAULT_MODEL if written.endswith("(absent)") else written.split(" ", 1)[1]
    for folder in sorted(swaps, key=len, reverse=True):
        value = _replaced(value, folder, swaps[folder])
    return value


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value


def field_differences(mine: Resolved, expected: Mapping[str, Any]) -> list[str]:
    """One sentence for every field whose value is not the expected one."""
    found = []
    for field, wanted in expected.items():
        if field in NOT_COMPARED:
            continue
        have = plain(mine.values.get(field, "(absent)"))
        if have != wanted or type(have) is not type(wanted):
            found.append(f"{field}: engine {wanted!r}, ours {have!r}")
    return found
