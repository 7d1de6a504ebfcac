"""Values that must not be shown: tokens, keys and passwords, in flags and in the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from perilune.facts.flags import environment
from perilune.plan.commandline.form import assignment
from perilune.plan.commandline.occurrences import occurrences

_PLACEHOLDER = re.compile(r"<[^<>]*>|\$\{?\w+\}?|")
_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|API_?KEY|ACCESS_KEY(_ID)?"
    r"|(OPENAI|PRIVATE|SECRET)_KEY)$"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or a record field of this name holds a secret."""
    upper = name.upper()
    known = environment().get(upper) if upper == name else None
    return bool(_SECRET_NAME.search(upper)) or (known is not None and known.secret)


def hidden(name: str, value: str) -> str:
    """The value as it may be shown: a secret becomes `<name>`, a placeholder; one that was there stays.

    In a value that is a JSON object, the secrets within are hidden.
    """
    if not is_secret_name(name):
        return _hidden_json(value)
    return value if _PLACEHOLDER.fullmatch(value) else placeholder(name)


def placeholder(name: str) -> str:
    """What stands for a secret of this name, to be replaced by its owner."""
    return f"<{name.lower().replace('_', '-')}>"


def _hidden_json(value: str) -> str:
    if not value.lstrip().startswith("{"):
        return value
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):
        return value
    shown = _hidden_members(content)
    return value if shown == content else json.dumps(shown)


def _hidden_members(content: Any) -> Any:
    if isinstance(content, dict):
        return {
            key: hidden(key, item) if isinstance(item, str) and is_secret_name(key) else _hidden_members(item)
            for key, item in content.items()
        }
    return [_hidden_members(item) for item in content] if isinstance(content, list) else content


def hide_in_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The argument list with the values of secret flags hidden."""
    shown = list(argv)
    for found in occurrences(argv):
        field = found.option.dest if found.option else found.spelled.lstrip("-").replace("-", "_")
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
    if word.startswith("-e") and (attached := assignment(word[2:].removeprefix("="))):
        return f"-e{attached[0]}={hidden(*attached)}"
    option, separator, text = word.partition("=") if word.startswith("-") else ("", "", word)
    pair = assignment(text)
    if pair is None:
        return word
    return f"{option}{separator}{pair[0]}={hidden(*pair)}"
