"""Values that must not be shown: tokens, keys and passwords, in flags and in the environment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perilune.facts.flags import environment
from perilune.plan.commandline.form import assignment
from perilune.plan.commandline.occurrences import occurrences

HIDDEN = "***"
_PLACEHOLDER = re.compile(r"<[^<>]*>|\$\{?\w+\}?|")
_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|ACCESS_KEY(_ID)?|PRIVATE_KEY)$"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or a record field of this name holds a secret."""
    upper = name.upper()
    known = environment().get(upper) if upper == name else None
    return bool(_SECRET_NAME.search(upper)) or (known is not None and known.secret)


def hidden(name: str, value: str) -> str:
    """The value as it may be shown: a secret becomes `***`; a placeholder or a `$NAME` stays."""
    if not is_secret_name(name) or _PLACEHOLDER.fullmatch(value):
        return value
    return HIDDEN


def hide_in_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The argument list with the values of secret flags hidden."""
    shown = list(argv)
    for found in occurrences(argv):
        field = found.option.dest if found.option else found.spelled.lstrip("-").replace("-", "_")
        if not is_secret_name(field):
            continue
        if found.joined:
            shown[found.position] = f"{found.spelled}={hidden(field, found.values[0])}"
            continue
        for index in range(found.position + 1, found.end):
            shown[index] = hidden(field, shown[index])
    return tuple(shown)


def hide_in_wrapper(wrapper: Sequence[str]) -> tuple[str, ...]:
    """The wrapper's words with the values of secret variables hidden, wherever NAME=VALUE stands."""
    return tuple(_hide_assignment(word) for word in wrapper)


def _hide_assignment(word: str) -> str:
    option, separator, text = word.partition("=") if word.startswith("-") else ("", "", word)
    pair = assignment(text)
    if pair is None:
        return word
    return f"{option}{separator}{pair[0]}={hidden(*pair)}"
