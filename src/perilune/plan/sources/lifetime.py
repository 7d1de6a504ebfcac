"""How long what a script starts keeps running: its own end, and the commands that stop servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from perilune.plan.sources.found import Word
from perilune.plan.sources.ways import Choice
from perilune.plan.sources.words import Scope

_LAST_STOP = "the last stop"  # servers before and behind one do not run together
_STOPPING = frozenset({"kill", "pkill", "killall", "scancel", "fuser"})


def way_of(scope: Scope, words: Sequence[Word], place: int) -> dict[str, Choice]:
    """What a command that runs now takes for granted: the branches taken, and the last stop before it.

    In a loop those of its start, for another round may go other ways.
    """
    way = dict(scope.way if scope.outer is None else scope.outer)
    way[_LAST_STOP] = scope.way.get(_LAST_STOP, _only("never"))
    if words[0].text == "exec":
        way[f"end at {place}"] = _only("here")
    return way


def pass_by(scope: Scope, words: Sequence[Word], place: int, *, conditional: bool) -> None:
    """What follows a command in a scope: behind a stop other servers run, behind the end of the script nothing."""
    if _stops(words):
        scope.way[_LAST_STOP] = _only(f"at {place}")
    name = words[0].text
    if (name == "exit" or (name == "exec" and len(words) > 1)) and not conditional and not scope.background:
        scope.way[f"end at {place}"] = _only("past")
        scope.ended = scope.unlikely = True


def _only(text: str) -> Choice:
    return Choice(frozenset({text}))


def _stops(words: Sequence[Word]) -> bool:
    """Whether a command ends servers that run, or waits until all have ended."""
    texts = [PurePosixPath(word.text).name for word in words if word.text != "sudo"]
    tool = texts[0] if texts else ""
    if tool in ("docker", "podman"):
        return not {"stop", "kill", "rm", "down"}.isdisjoint(texts[1:3])
    return tool in _STOPPING or texts == ["wait"] or (tool == "kubectl" and "delete" in texts[1:2])
