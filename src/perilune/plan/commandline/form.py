"""What stands before a server's own flags: variables, a wrapper such as `docker run`, and the program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

from perilune.errors import UnusableInput
from perilune.plan.commandline.words import statements

Assignment = tuple[str, str]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_SHELL_SWITCH = re.compile(r"-[a-z]*c")
_CONTAINER_TOOLS = frozenset({"docker", "podman", "nerdctl"})
_MODULES = frozenset({"sglang.launch_server", "sglang.cli.main"})


@dataclass(frozen=True, slots=True)
class Form:
    """A command's words, sorted by what they are for. Joined again they are the same command."""

    env: tuple[Assignment, ...]
    wrapper: tuple[str, ...]
    program: tuple[str, ...]
    argv: tuple[str, ...]


def assignment(word: str) -> Assignment | None:
    """`NAME=VALUE` as a pair; None for any other word."""
    match = _ASSIGNMENT.fullmatch(word)
    return (match[1], match[2]) if match else None


def leading_assignments(words: Sequence[str]) -> tuple[tuple[Assignment, ...], int]:
    """The assignments that open a command, and how many words they take."""
    found = []
    for word in words:
        pair = assignment(word)
        if pair is None:
            break
        found.append(pair)
    return tuple(found), len(found)


def read_form(words: Sequence[str]) -> Form:
    """Find the server's program in a command; raises UnusableInput when there is none and no bare flags."""
    env, start = leading_assignments(words)
    rest = tuple(words[start:])
    if (shell := _shell_command(rest)) is not None:
        return _with_inner(env, *shell)
    if rest[:1] == ("env",) and (inner := leading_assignments(rest[1:]))[1]:
        env, rest = env + inner[0], rest[1 + inner[1] :]
    if not rest or rest[0].startswith("-"):
        return Form(env, (), (), rest)
    for index in range(len(rest)):
        if length := _program_length(rest, index):
            end = index + length
            return Form(env, rest[:index], rest[index:end], rest[end:])
    raise UnusableInput(
        f"No server command in it: it starts with {rest[0][:60]!r}.",
        where="command line",
        fix="Give `sglang serve ...`, `python -m sglang.launch_server ...`, or the flags alone.",
    )


def _shell_command(words: tuple[str, ...]) -> tuple[tuple[str, ...], str] | None:
    """What stands before `bash -c "..."`, and the text inside; None when the command does not end so.

    Docker's `--entrypoint bash IMAGE -c "..."` counts too. The shell itself is left out: it adds nothing.
    """
    if len(words) < 3 or not _SHELL_SWITCH.fullmatch(words[-2]):
        return None
    if _is_shell(words[-3]):
        return words[:-3], words[-1]
    for index, word in enumerate(words[:-2]):
        if word == "--entrypoint" and _is_shell(words[index + 1]):
            return words[:index] + words[index + 2 : -2], words[-1]
        if word.startswith("--entrypoint=") and _is_shell(word.removeprefix("--entrypoint=")):
            return words[:index] + words[index + 1 : -2], words[-1]
    return None


def _is_shell(word: str) -> bool:
    return PurePosixPath(word).name in ("bash", "sh", "zsh")


def _with_inner(env: tuple[Assignment, ...], wrapper: tuple[str, ...], text: str) -> Form:
    """The command inside a shell, with what the shell was started by around it."""
    inside = statements(text)
    if len(inside) != 1:
        raise UnusableInput(
            f"The shell is given {len(inside)} commands.", where="command line", fix="Give the server's alone."
        )
    words = inside[0].words
    form = read_form(words[1:] if words[0] == "exec" else words)
    if container_tool(wrapper) is None:
        return Form(env + form.env, wrapper + form.wrapper, form.program, form.argv)
    given = tuple(word for name, value in form.env for word in ("--env", f"{name}={value}"))
    wrapper = (*wrapper[:-1], *given, wrapper[-1], *form.wrapper)
    return Form(env, wrapper, form.program, form.argv)


def _program_length(words: Sequence[str], index: int) -> int:
    """How many words at `index` name the server's program (0: none)."""
    name = PurePosixPath(words[index]).name
    if name == "sglang" and words[index + 1 : index + 2] in (("serve",), ["serve"]):
        return 2
    if not _PYTHON.fullmatch(name):
        return 0
    for offset in range(index + 1, min(index + 8, len(words))):
        if words[offset] == "-m" and words[offset + 1 : offset + 2]:
            module = words[offset + 1]
            if module == "sglang.cli.main":
                return offset + 3 - index if words[offset + 2 : offset + 3] in (("serve",), ["serve"]) else 0
            return offset + 2 - index if module in _MODULES else 0
    return 0


def serves(program: Sequence[str]) -> bool:
    """Whether the program is `sglang serve`, which also takes a positional model and --model-type."""
    return bool(program) and program[-1] == "serve"


def container_tool(wrapper: Sequence[str]) -> str | None:
    """The container tool of a wrapper (`docker`), if it starts a container."""
    for word, action in pairwise(wrapper):
        if PurePosixPath(word).name in _CONTAINER_TOOLS and action in ("run", "exec"):
            return PurePosixPath(word).name
    return None


def container_env(wrapper: Sequence[str], outside: dict[str, str]) -> Iterator[Assignment]:
    """The variables a container is given with -e or --env; `-e NAME` passes the one from outside."""
    words = iter(wrapper)
    for word in words:
        if word in ("-e", "--env"):
            text = next(words, "")
        elif word.startswith("--env="):
            text = word[len("--env=") :]
        elif word.startswith("-e") and assignment(word[2:].removeprefix("=")):
            text = word[2:].removeprefix("=")
        else:
            continue
        if pair := assignment(text):
            yield pair
        elif text in outside:
            yield text, outside[text]
