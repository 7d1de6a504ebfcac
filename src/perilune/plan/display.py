"""How people read what a plan holds: its parallel widths, and text that somebody else wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_KIND = re.compile(r"^\w+(?:Error|Exception): ?")
_ADVICE = re.compile(r" (?:Try: \(1\)|Please try to increase|Raise --mem-fraction-static above).*")

WIDTHS: Final = {"TP": "tp_size", "PP": "pp_size", "DP": "attn_dp_size", "DCP": "dcp_size", "EP": "ep_size"}
"""Widths of resolved values, in the order they are written."""


def shape_text(values: Mapping[str, Any]) -> str:
    """The parallel widths above one, and TP always, such as `TP8 × DCP8`."""
    return " × ".join(f"{short}{values[name]}" for short, name in WIDTHS.items() if values[name] > 1 or short == "TP")


def counted(number: int, noun: str) -> str:
    """A number and its noun, such as `1 request` and `1,024 requests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def band_text(low: int, high: int, *, boots: bool = True) -> str:
    """The two ends of a prediction; where the server may not boot at the unlucky one, that."""
    return f"{low:,} to {high:,}" if boots else f"may not boot, at best {high:,}"


def engine_words(error: str, longest: int = 400) -> str:
    """What the engine says is wrong, without the kind of exception and without its own advice, which may mislead."""
    text = _KIND.sub("", " ".join(error.split()))
    text = _ADVICE.sub("", text).removesuffix(".").strip()
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0].rstrip(',')} and so on"


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)
