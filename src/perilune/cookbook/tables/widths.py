"""Column widths that suit what the columns hold."""

from __future__ import annotations

import math
import re

MAX_WORD = 30
MAX_TEXT = 300
_WORD = re.compile(r"\S+")


def column_widths(columns: list[list[str]]) -> list[int]:
    """Return the width of each column in percent, from the texts of its cells; they add up to 100.

    A column wants room for its longest word, and more the longer its longest text, though less than in
    proportion: long texts wrap. Widths are multiples of 5 where the columns are few.
    """
    wants = [_wanted(texts) for texts in columns]
    step = 5 if len(columns) <= 8 else 1
    shares = 100 // step
    if len(columns) > shares:
        return [0] * len(columns)
    exact = [want * shares / sum(wants) for want in wants]
    widths = [max(1, int(share)) for share in exact]
    while sum(widths) < shares:
        neediest = max(range(len(widths)), key=lambda column: exact[column] - widths[column])
        widths[neediest] += 1
    while sum(widths) > shares:
        widest = max(range(len(widths)), key=lambda column: (widths[column], column))
        widths[widest] -= 1
    return [width * step for width in widths]


def _wanted(texts: list[str]) -> float:
    longest = max((len(text) for text in texts), default=0)
    word = max((len(word) for text in texts for word in _WORD.findall(text)), default=0)
    return max(8.0, float(min(word, MAX_WORD)), math.pow(min(longest, MAX_TEXT), 0.75))
