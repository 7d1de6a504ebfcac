"""Percent-encoding of link targets as CommonMark renderers do it."""

from __future__ import annotations

import re
from urllib.parse import quote

_UNSAFE = re.compile(r"%(?![0-9A-Za-z]{2})|[^!#$%&-;=?-Z_a-z~]")


def normalize(target: str) -> str:
    """Return `target` with every character encoded that a URL may not hold; valid `%XX` stays."""
    return _UNSAFE.sub(lambda match: quote(match.group(), safe=""), target)
