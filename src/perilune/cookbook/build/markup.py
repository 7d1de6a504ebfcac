"""Small pieces of a page as Markdown that MDX reads the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_VALUE = r"(?:=[^\s,;:]*[^\s,;:.])?"
_CODE = re.compile(
    rf"--[a-z][a-z0-9-]*{_VALUE}|<[a-z][a-z0-9. -]*>|(?<![\w./-])[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]{_VALUE}"
)
_MARKS = re.compile(r"[\\`*_{}\[\]<|~]")


def words(text: str) -> str:
    """Return a sentence of the catalog: flags, variables and placeholders as code, all else as it reads."""
    parts: list[str] = []
    done = 0
    for match in _CODE.finditer(text):
        parts += [_escape(text[done : match.start()]), code(match.group())]
        done = match.end()
    return "".join(parts) + _escape(text[done:])


def _escape(text: str) -> str:
    return _MARKS.sub(r"\\\g<0>", text)


def code(text: str) -> str:
    """Return inline code, also right within a table."""
    return "`" + text.replace("|", "\\|") + "`"


def sentence(text: str) -> str:
    """Return text closed by a full stop."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else text + "."


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a pipe table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cell or " " for cell in line) + " |\n" for line in lines)


def fence(text: str, info: str = "bash Command") -> str:
    """Return a fenced block."""
    return f"```{info}\n{text}\n```\n"


def bullets(items: Iterable[str]) -> str:
    """Return a list; items are Markdown."""
    return "".join(f"- {item}\n" for item in items)
