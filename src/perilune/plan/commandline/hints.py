"""What to write instead of a flag or value the engine does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perilune.facts.flags import Rename, closest_flag, renamed_flag, renames
from perilune.plan.commandline.occurrences import Occurrence, matching, occurrences
from perilune.plan.commandline.secrets import is_secret_name


def hints(argv: Sequence[str]) -> tuple[str, ...]:
    """One sentence for every unknown, ambiguous or misspelled flag and every renamed value, in order."""
    return tuple(hint for found in occurrences(argv) for hint in _hints(found))


def _hints(found: Occurrence) -> Iterator[str]:
    if found.option is None:
        yield _unknown(found.spelled)
        return
    for rename in renames().values:
        if rename.flag == found.name and rename.status == "gone" and rename.old in found.values:
            yield f"{found.spelled} {rename.old} is now {rename.to}.{_note(rename)}"
    if not is_secret_name(found.option.dest) and any("<" in value and ">" in value for value in found.values):
        yield f"{found.spelled} still holds the placeholder {' '.join(found.values)[:80]}."


def _unknown(spelled: str) -> str:
    if rename := renamed_flag(spelled):
        if not rename.to:
            return f"{spelled} is gone and nothing replaces it.{_note(rename)}"
        return f"{spelled} is now {rename.to}.{_note(rename)}"
    if matching(spelled):
        return f"Write the flag that {spelled} stands for in full."
    near = closest_flag(spelled)
    shown = spelled[:80]
    return (
        f"{shown} is not a flag of SGLang; the closest one is {near}." if near else f"{shown} is not a flag of SGLang."
    )


def _note(rename: Rename) -> str:
    return f" {rename.note}" if rename.note else ""
