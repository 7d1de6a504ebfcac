"""Parts of a file in a form of their own, read where they stand."""

from __future__ import annotations

import re
from dataclasses import replace

from perilune.plan.sources.text import Text

MOST_PARTS = 100
_SHOWN = re.compile(r"[^\r\n]+")


def excerpt(text: Text, part: range) -> Text:
    """The text with blanks for all but a part of it, so that every place stays what it is."""
    shown = text.text[part.start : part.stop]
    return replace(text, text=_blank(text.text[: part.start]) + shown + _blank(text.text[part.stop :]))


def _blank(source: str) -> str:
    return _SHOWN.sub(lambda line: " " * len(line.group()), source)
