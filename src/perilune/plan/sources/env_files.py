"""Variables of a container that stand in files of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perilune.plan.server import Server
from perilune.plan.sources.found import Note

if TYPE_CHECKING:
    from perilune.plan.sources.launch import Surroundings


def env_files_unread(server: Server, around: Surroundings, place: int) -> bool:
    """Whether a container gets variables from files, which is said of each."""
    if server.container is None:
        return False
    names = list(_env_files(server.wrapper))
    tell_unread(names, around, place)
    return bool(names)


def tell_unread(names: Sequence[str], around: Surroundings, place: int) -> None:
    """Say of files that their variables are not known."""
    for name in names:
        around.notes.append(Note(f"What {name[:80]} sets is not known here.", around.text.line(place)))


def _env_files(wrapper: Sequence[str]) -> Iterator[str]:
    for index, word in enumerate(wrapper):
        if word == "--env-file" and index + 1 < len(wrapper):
            yield wrapper[index + 1]
        elif word.startswith("--env-file="):
            yield word.removeprefix("--env-file=")
