"""Shell text to statements of words, without evaluating anything.

Understood: quotes, backslashes, line continuations, comments, several statements. Kept as they stand:
`$NAME`, `${NAME}`, `$(...)`, backquotes and placeholders such as `<node0-ip>`. Left out: what only says
where output goes (redirections, a pipe, a final `&`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perilune.errors import UnusableInput

MAX_CHARACTERS = 262_144
MAX_WORDS = 8_192

_PIECE = re.compile(
    r"""
      (?P<continuation> \\(?:\r?\n|\Z) )
    | (?P<newline>      \r?\n )
    | (?P<blank>        [ \t\r\f\v]+ )
    | (?P<single>       '[^']*' )
    | (?P<double>       "(?:[^"\\]|\\.)*" )
    | (?P<literal>      <[A-Za-z][\w .:/-]*> | \$\([^()\n]*\) | `[^`\n]*` )
    | (?P<redirect>     \d*(?:&>>|&>|>>|>&|>\||>|<<<|<<|<&|<) )
    | (?P<control>      &&|\|\||\||&|; )
    | (?P<escaped>      \\. )
    | (?P<plain>        [^\s'"\\|&;<>`$]+ | \$ )
    """,
    re.VERBOSE | re.DOTALL,
)
_DOUBLE_QUOTED_ESCAPE = re.compile(r'\\(?:\r?(\n)|([$`"\\]))')


@dataclass(frozen=True, slots=True)
class Statement:
    """One simple command: its words, and the 1-based line where it starts."""

    words: tuple[str, ...]
    line: int


@dataclass(slots=True)
class _Open:
    """A statement while it is read."""

    words: list[str]
    line: int
    redirected: bool = False
    target_due: bool = False  # the next word is the file of a redirection
    piped: bool = False


def check_size(characters: int) -> None:
    """Raise UnusableInput when a command line is longer than any real one."""
    if characters > MAX_CHARACTERS:
        raise UnusableInput(
            f"It has {characters:,} characters; the most that is read is {MAX_CHARACTERS:,}.",
            where="command line",
            fix="Give one server's command.",
        )


def statements(text: str) -> list[Statement]:
    """Split shell text; raises UnusableInput on an open quote, a NUL byte, or an oversized text."""
    check_size(len(text))
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UnusableInput("It contains a NUL byte.", where=f"command line, line {line}")
    return [Statement(tuple(read.words), read.line) for read in _read(text) if read.words]


def _read(text: str) -> Iterator[_Open]:
    position, line = 0, 1
    current = _Open([], 1)
    word: list[str] | None = None
    while position < len(text):
        if word is None and text[position] == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        match = _PIECE.match(text, position)
        if match is None:
            raise UnusableInput(
                f"The character {text[position]!r} opens something that is never closed.",
                where=f"command line, line {line}",
                fix="Close the quote, or remove it.",
            )
        kind, piece, here = str(match.lastgroup), match.group(), line
        position = match.end()
        line += piece.count("\n")
        if kind == "continuation":
            continue
        if kind in ("single", "double", "literal", "escaped", "plain"):
            word = word or []
            word.append(_content(kind, piece))
            continue
        if word is not None and kind == "redirect" and piece[0].isdigit():
            word.append(piece[: len(piece) - len(piece.lstrip("0123456789"))])
        if word is not None:
            _add_word(current, "".join(word), here)
            word = None
        if kind in ("newline", "control") and _ends(current, piece):
            yield current
            current = _Open([], line)
        elif kind == "redirect":
            current.redirected = current.target_due = True
        elif kind == "control":
            current.piped = True
    if word is not None:
        _add_word(current, "".join(word), line)
    yield current


def _ends(statement: _Open, piece: str) -> bool:
    """Whether this separator closes the statement; a pipe or `&` only closes its words."""
    if piece in ("|", "&"):
        return False
    if piece == "||":
        raise UnusableInput(
            "`||` makes the command depend on another one.",
            where=f"command line, line {statement.line}",
            fix="Give the server's command alone.",
        )
    return True


def _add_word(statement: _Open, word: str, line: int) -> None:
    if statement.piped:
        return
    if statement.redirected:
        if not statement.target_due:
            raise UnusableInput(
                f"{word[:60]!r} comes after a redirection.",
                where=f"command line, line {line}",
                fix="Move the redirection behind the last flag.",
            )
        statement.target_due = False
        return
    if len(statement.words) >= MAX_WORDS:
        raise UnusableInput(f"It has more than {MAX_WORDS:,} words.", where="command line")
    if not statement.words:
        statement.line = line
    statement.words.append(word)


def _content(kind: str, piece: str) -> str:
    if kind == "single":
        return piece[1:-1]
    if kind == "double":
        return _DOUBLE_QUOTED_ESCAPE.sub(lambda m: m.group(2) or "", piece[1:-1])
    return piece[1:] if kind == "escaped" else piece
