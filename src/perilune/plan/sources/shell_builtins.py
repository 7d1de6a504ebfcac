"""What the shell's own commands do to what is known of variables and arguments."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.plan.sources.found import Word
from perilune.plan.sources.words import Scope, placeless


def run_builtin(words: Sequence[Word], scope: Scope) -> None:
    """`unset`, `set` and `shift`; nothing for other commands."""
    match [word.text for word in words]:
        case ["unset", *names]:
            for name in names:
                scope.variables.pop(name, None)
        case ["set", "-a" | "+a" as switch] | ["set", "-o" | "+o" as switch, "allexport"]:
            scope.exports_all = switch.startswith("-")
        case ["set", "--", *_]:
            scope.arguments = tuple(words[2:])
        case ["shift", *count] if scope.arguments is not None:
            by = int(count[0]) if count and count[0].isdecimal() and len(count[0]) < 6 else 1
            scope.arguments = scope.arguments[by:]


def as_sourced(before: Scope, after: Scope) -> Scope:
    """A scope behind a file that was sourced: none of its new values has a place here, its functions are not kept."""
    after.ended, after.unlikely = before.ended, before.unlikely
    after.foreign = after.foreign or after.functions.keys() != before.functions.keys()
    after.functions = dict(before.functions)
    for name, value in after.variables.items():
        if value is not before.variables.get(name):
            after.variables[name] = placeless(value)
    return after
