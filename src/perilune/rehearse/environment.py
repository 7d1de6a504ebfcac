"""Numbers that a server reads from its environment variables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from perilune.errors import UnusableInput

MOST: Final = 10**12


def whole(env: Mapping[str, str], name: str, default: int) -> int:
    """A whole number of 0 or more, `default` where the variable is not set; raises UnusableInput for anything else."""
    text = env.get(name)
    if text is None:
        return default
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(MOST)):
        raise _unusable(name, text, "whole number", default)
    return int(digits)


def real(env: Mapping[str, str], name: str, default: float) -> float:
    """A finite number of 0 or more, `default` where the variable is not set; raises UnusableInput for anything else."""
    text = env.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOST:
        raise _unusable(name, text, "number", default)
    return value


def _unusable(name: str, text: str, kind: str, default: float) -> UnusableInput:
    return UnusableInput(
        f"{text[:40]!r} is no {kind} from 0 to {MOST:,}.",
        where=name,
        fix=f"Write one, or leave the variable out for the engine's own {default:g}.",
    )
