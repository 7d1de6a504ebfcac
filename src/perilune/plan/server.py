"""A server's command line and environment as a value: read from what people paste, written back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from perilune.errors import UnusableInput
from perilune.plan.commandline import form, secrets
from perilune.plan.commandline.form import Assignment
from perilune.plan.commandline.occurrences import Occurrence, find_option, occurrences
from perilune.plan.commandline.words import MAX_WORDS, Statement, check_size, statements

SGLANG_SERVE = ("sglang", "serve")

Value = str | int | float | Sequence[str | int | float] | None


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    """What somebody wrote to start one server. Nothing is interpreted: `$NAME` and placeholders stay.

    `argv` is what the program is given; `env` the variables set in front of it (or exported before);
    `wrapper` what starts the program (`docker run ... IMAGE`, `numactl ...`), empty for most; `program`
    is empty when flags were given alone.
    """

    argv: tuple[str, ...] = ()
    env: tuple[Assignment, ...] = ()
    program: tuple[str, ...] = SGLANG_SERVE
    wrapper: tuple[str, ...] = ()

    @classmethod
    def parse(cls, command: str | Sequence[str]) -> Self:
        """Read shell text, or words a shell has already split; raises UnusableInput naming the place."""
        if isinstance(command, str):
            return cls._from_statements(statements(command))
        check_size(sum(map(len, command)) + len(command))
        if len(command) > MAX_WORDS:
            raise UnusableInput(f"It has more than {MAX_WORDS:,} words.", where="command line")
        if any("\0" in word for word in command):
            raise UnusableInput("It contains a NUL byte.", where="command line")
        return cls._from_form(form.read_form(command), ())

    @classmethod
    def _from_statements(cls, found: Sequence[Statement]) -> Self:
        exported: list[Assignment] = []
        server: Self | None = None
        for statement in found:
            if statement.words[0] == "export" and server is None:
                exported.extend(_exports(statement))
                continue
            if server is not None and not (server.bare and statement.words[0].startswith("-")):
                raise _second_statement(statement)
            if server is not None:
                server = replace(server, argv=server.argv + statement.words)
                continue
            read = form.read_form(statement.words)
            if read.env and not read.argv and not read.program:
                raise UnusableInput(
                    f"{read.env[0][0]}=... on a line of its own does not reach the server.",
                    where=f"command line, line {statement.line}",
                    fix="Write `export NAME=VALUE`, or end the line with a backslash.",
                )
            server = cls._from_form(read, exported)
        if server is None:
            raise UnusableInput("It is empty.", where="command line", fix="Give `sglang serve` and its flags.")
        return server

    @classmethod
    def _from_form(cls, read: form.Form, exported: Iterable[Assignment]) -> Self:
        env = dict(exported) | dict(read.env)
        return cls(read.argv, tuple(env.items()), read.program, read.wrapper)

    @property
    def bare(self) -> bool:
        """Whether only flags were given, without a program."""
        return not self.program

    @property
    def container(self) -> str | None:
        """`docker`, `podman` or `nerdctl` when the command starts a container."""
        return form.container_tool(self.wrapper)

    @property
    def image(self) -> str | None:
        """The container image, when the command starts one."""
        return self.wrapper[-1] if self.container else None

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that the server itself sees: inside a container, those it is given."""
        outside = dict(self.env)
        return dict(form.container_env(self.wrapper, outside)) if self.container else outside

    @property
    def flags(self) -> tuple[Occurrence, ...]:
        """Every flag as written, in order."""
        return occurrences(self.argv)

    def has(self, flag: str) -> bool:
        """Whether the option that `flag` names is written, in any spelling."""
        return any(found.name == _canonical(flag) for found in self.flags)

    def values(self, flag: str) -> tuple[str, ...] | None:
        """The values written with the option's last occurrence (none for a switch); None if absent."""
        name = _canonical(flag)
        return next((found.values for found in reversed(self.flags) if found.name == name), None)

    def value(self, flag: str) -> str | None:
        """The single value written for an option, its last occurrence winning; None if absent or a switch."""
        written = self.values(flag)
        return " ".join(written) if written else None

    def set(self, flag: str, value: Value = None) -> Self:
        """Write `flag` with `value` (None for a switch) where the option stood first, else at the end."""
        words = (flag, *_value_words(value))
        name = _canonical(flag)
        first = next((found.position for found in self.flags if found.name == name), None)
        rest = self.unset(flag).argv
        at = len(rest) if first is None else first
        return replace(self, argv=rest[:at] + words + rest[at:])

    def unset(self, flag: str) -> Self:
        """Remove every occurrence of an option, in all its spellings, with its values."""
        name = _canonical(flag)
        gone = {i for found in self.flags if found.name == name for i in range(found.position, found.end)}
        return replace(self, argv=tuple(word for i, word in enumerate(self.argv) if i not in gone))

    def with_env(self, variables: Mapping[str, str | None]) -> Self:
        """Set variables for the server (None removes one), in the container when there is one."""
        if self.container:
            return replace(self, wrapper=_container_with(self.wrapper, variables))
        merged = {**dict(self.env), **variables}
        return replace(self, env=tuple((name, text) for name, text in merged.items() if text is not None))

    def format(self, *, one_per_line: bool = False) -> str:
        """The command as shell text that can be run, and that `parse` reads back as an equal value."""
        head = [f"{name}={shlex.quote(text)}" for name, text in self.env]
        start = (*self.wrapper, *self.program)
        command = [shlex.join(start)] if start else []
        if not one_per_line:
            return " ".join([*head, *command, *map(shlex.quote, self.argv)])
        groups = [shlex.join(group) for group in _groups(self.argv)]
        indent = "  " if command else ""
        return " \\\n".join([*head, *command, *(indent + group for group in groups)])

    def display(self, *, one_per_line: bool = False) -> str:
        """The command for people's eyes: like `format`, with secrets hidden."""
        return self.redacted().format(one_per_line=one_per_line)

    def redacted(self) -> Self:
        """The same command with every secret value hidden; placeholders and `$NAME` stay."""
        env = tuple((name, secrets.hidden(name, text)) for name, text in self.env)
        argv, wrapper = secrets.hide_in_argv(self.argv), secrets.hide_in_wrapper(self.wrapper)
        return replace(self, env=env, argv=argv, wrapper=wrapper)

    def __repr__(self) -> str:
        return f"Server({self.display()!r})"


def _canonical(flag: str) -> str:
    option = find_option(flag)
    return option.name if option else flag


def _value_words(value: Value) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str | int | float):
        return (str(value),)
    return tuple(map(str, value))


def _groups(argv: Sequence[str]) -> list[Sequence[str]]:
    """The words of an argument list, one flag with its values a group."""
    starts = sorted({0, *(found.position for found in occurrences(argv)), *(f.end for f in occurrences(argv))})
    ends = [*starts[1:], len(argv)]
    return [argv[start:end] for start, end in zip(starts, ends, strict=True) if start < end]


def _exports(statement: Statement) -> list[Assignment]:
    pairs = [form.assignment(word) for word in statement.words[1:]]
    if None in pairs:
        raise UnusableInput("An export line may only hold NAME=VALUE.", where=f"command line, line {statement.line}")
    return [pair for pair in pairs if pair is not None]


def _second_statement(statement: Statement) -> UnusableInput:
    flag = statement.words[0].startswith("-")
    return UnusableInput(
        f"{statement.words[0][:60]!r} starts another command.",
        where=f"command line, line {statement.line}",
        fix="End the line before it with a backslash." if flag else "Give one server's command at a time.",
    )


def _container_with(wrapper: tuple[str, ...], variables: Mapping[str, str | None]) -> tuple[str, ...]:
    words: list[str] = []
    index = 0
    while index < len(wrapper):
        size = 2 if wrapper[index] in ("-e", "--env") else 1
        chunk = wrapper[index : index + size]
        index += size
        given = next(form.container_env(chunk, {}), None)
        if given is None or given[0] not in variables:
            words.extend(chunk)
    added = [w for name, text in variables.items() if text is not None for w in ("--env", f"{name}={text}")]
    return (*words[:-1], *added, *words[-1:])
