"""How people read what a plan holds: its parallel widths, and text that somebody else wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

WIDTHS: Final = {"TP": "tp_size", "PP": "pp_size", "DP": "attn_dp_size", "DCP": "dcp_size", "EP": "ep_size"}
"""Widths of resolved values, in the order they are written."""


def shape_text(values: Mapping[str, Any]) -> str:
    """The parallel widths above one, and TP always, such as `TP8 × DCP8`."""
    return " × ".join(f"{short}{values[name]}" for short, name in WIDTHS.items() if values[name] > 1 or short == "TP")


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)
