"""A command line as flags with their values."""

from __future__ import annotations

from collections.abc import Sequence


def flags_of(command: Sequence[str]) -> dict[str, str]:
    """Flags with what follows them, as text; the words before the first flag under an empty name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in command:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = [value] if value else []
        else:
            found[name].append(word)
    return {name: " ".join(words) for name, words in found.items()}
