"""What a person sees: 80 columns, aligned tables, colour only on a terminal; and what a program reads."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
GIB = 1 << 30


def console() -> Console:
    """A console 80 columns wide; colour only on a terminal and without NO_COLOR."""
    from rich.console import Console

    return Console(width=WIDTH, highlight=False, soft_wrap=False, emoji=False)


def emit_json(value: Any) -> None:
    """Print one JSON document, two-space indent, keys in the given order."""
    raw = msgspec.json.format(msgspec.json.encode(value), indent=2)
    click.echo(raw.decode())


def gib(bytes_: float, digits: int = 2) -> str:
    """Bytes as GiB text, such as `26.47`."""
    return f"{bytes_ / GIB:,.{digits}f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Any:
    """A borderless table; `right` lists the columns to align right. Cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(columns):
        grid.add_column(name, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def paragraph(text: str, *, indent: str = "", style: str = "") -> None:
    """Wrapped text; `indent` starts the first line and its width the others."""
    from rich.text import Text

    wrapped = textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
    )
    console().print(Text(wrapped, style=style))


def note(text: str) -> None:
    """A sentence to standard error, in lines that fit; what stands on lines of its own stays so."""
    lines = (line for part in text.split("\n") for line in wrapped(part) or [""])
    click.echo("\n".join(lines), err=True)


def wrapped(text: str, indent: str = "", less: int = 0) -> list[str]:
    """Lines of at most 80 columns less `less`; a word that is longer, such as a path, stays whole, to be copied."""
    return textwrap.wrap(text, WIDTH - less, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
