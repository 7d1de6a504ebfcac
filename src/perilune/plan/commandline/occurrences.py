"""Which option each word of a command line belongs to, following argparse's own reading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from perilune.facts.flags import Option, options

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One flag as written. `option` is None for a flag the engine does not know, or an ambiguous one.

    `position` and `end` delimit its words in the argument list, values included.
    """

    spelled: str
    option: Option | None
    values: tuple[str, ...]
    position: int
    end: int
    joined: bool = False  # written as --flag=value

    @property
    def name(self) -> str:
        """The option's canonical spelling, or the written one when it is unknown."""
        return self.option.name if self.option else self.spelled


@lru_cache(maxsize=2048)
def matching(spelled: str) -> tuple[str, ...]:
    """Known spellings that `spelled` may stand for: itself, or every option it is a prefix of."""
    known = options()
    if spelled in known:
        return (spelled,)
    if not spelled.startswith("--") or len(spelled) < 3:
        return ()
    return tuple(option for option in known if option.startswith(spelled))


def find_option(spelled: str) -> Option | None:
    """The option that a spelling or a unique prefix means."""
    found = matching(spelled)
    return options()[found[0]] if len(found) == 1 else None


def is_flag(word: str) -> bool:
    """Whether argparse reads a word as a flag rather than as a value."""
    if len(word) < 2 or word[0] != "-" or " " in word.partition("=")[0]:
        return False
    return not _NEGATIVE_NUMBER.fullmatch(word)


def occurrences(argv: Sequence[str]) -> tuple[Occurrence, ...]:
    """Every flag of an argument list, in order. Words that belong to no flag are left out."""
    found = []
    index = 0
    while index < len(argv):
        word = argv[index]
        if not is_flag(word):
            index += 1
            continue
        spelled, equals, value = word.partition("=")
        option = find_option(spelled)
        end = index + 1 if equals else _end_of_values(argv, index + 1, option)
        values = (value,) if equals else tuple(argv[index + 1 : end])
        found.append(Occurrence(spelled, option, values, index, end, bool(equals)))
        index = end
    return tuple(found)


def _end_of_values(argv: Sequence[str], start: int, option: Option | None) -> int:
    if option is not None and not option.takes_value:
        return start
    # An unknown flag is taken to have at most one value.
    many = option is not None and option.nargs in ("+", "*")
    last = len(argv) if many else min(start + 1, len(argv))
    return next((i for i in range(start, last) if is_flag(argv[i])), last)
