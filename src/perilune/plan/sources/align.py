"""Which character of a file each character of a value comes from."""

from __future__ import annotations


def aligned(raw: str, value: str, start: int) -> tuple[int, ...]:
    """The place in `raw`, from `start`, of each character of a text that escapes and folding changed."""
    places, at = [], start
    for char in value:
        if char.isspace():
            places.append(min(at, len(raw) - 1))
            if at < len(raw) and raw[at].isspace():
                at += 1
            continue
        found = at
        while found < len(raw) and raw[found] != char and (raw[found].isspace() or raw[found] in "\\'\""):
            found += 1
        if found < len(raw) and raw[found] == char:
            at = found
        places.append(min(at, len(raw) - 1))
        at += 1
    return tuple(places)
