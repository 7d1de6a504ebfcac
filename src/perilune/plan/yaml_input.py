"""YAML that somebody else wrote: safe, without aliases, not too deep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from perilune.errors import UnusableInput

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_DEPTH = 100


def read_yaml(raw: bytes, where: str) -> Any:
    """The plain value of one YAML document; raises UnusableInput naming `where` and the line."""
    try:
        _look_through(raw, where)
        return yaml.load(raw, Loader=LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}, line {mark.line + 1}" if mark else where
        problem = getattr(error, "problem", None) or str(error)
        raise UnusableInput(f"It cannot be read as YAML ({' '.join(str(problem).split())}).", where=place) from None


def _look_through(raw: bytes, where: str) -> None:
    depth = 0
    events: Iterator[Any] = yaml.parse(raw, Loader=LOADER)
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise UnusableInput(
                "It uses an alias (*name), which can stand for gigabytes.",
                where=_at(event, where),
                fix="Write the value out.",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEPTH:
                raise UnusableInput(
                    f"It is nested more than {MOST_DEPTH} deep.",
                    where=_at(event, where),
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _at(event: Any, where: str) -> str:
    return f"{where}, line {event.start_mark.line + 1}"
