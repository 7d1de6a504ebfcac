"""How many prompt tokens an image is to Kimi-K3."""

from __future__ import annotations

import math
from typing import Final

from perilune.errors import UnusableInput

PATCH: Final = 14
"""Pixels of a patch's side."""

MERGE: Final = 2
"""Patches on a side that become one token."""

PATCHES: Final = 65_536
SIDE_PATCHES: Final = 512
"""`in_patch_limit` and `patch_limit_on_one_side` of Kimi-K3's `preprocessor_config.json`."""

MOST_PIXELS: Final = 100_000


def image_tokens(width: int, height: int) -> int:
    """Tokens of an image of so many pixels, without the few control tokens around it.

    As SGLang 0.5.23 resizes it (`srt/multimodal/processors/kimi_k25.py`): shrunk, never enlarged, until neither its
    patches nor either side exceed the limits, then padded to whole tokens.
    """
    if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
        raise UnusableInput(f"An image is 1 to {MOST_PIXELS:,} pixels wide and high.", where=f"image {width}x{height}")
    patches = max(1, width // PATCH) * max(1, height // PATCH)
    longest = SIDE_PATCHES * PATCH
    scale = min(1.0, math.sqrt(PATCHES / patches), longest / width, longest / height)
    sides = (min(max(1, int(side * scale)), longest) for side in (width, height))
    across, down = (-(-side // (PATCH * MERGE)) for side in sides)
    return across * down
